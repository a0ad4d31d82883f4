'use strict';
// Filters the families and draws those that are on the screen.

const TONES = 8; // Colours of distractor kinds in the style sheet.
const AHEAD_PX = 900; // How far off the screen families are drawn.
const NARROW = matchMedia('(max-width: 640px)');

const $ = id => document.getElementById(id);
const state = {
  words: [], levels: new Set(), kinds: new Set(), size: 96,
};

const families = VIEW.worlds.flatMap((world, w) => world.families.map(
  family => ({ ...readFamily(world, family), world, folder: `images/${w}` }),
));
const kindCounts = new Map();
for (const { queries } of families) {
  for (const { kinds } of queries) {
    for (const kind of kinds) {
      kindCounts.set(kind, (kindCounts.get(kind) ?? 0) + 1);
    }
  }
}
const kindNames = [...kindCounts.keys()].sort();
const levels = [...new Set(VIEW.worlds.map(world => world.level))].sort();

// Returns a family with its trees as objects and the words it is found by.
function readFamily(world, family) {
  const queries = family.queries.map(query => {
    const tree = query.tree.map(readNode);
    const kinds = new Set([
      ...tree.flatMap(node => node.kinds),
      ...query.rest.flatMap(([, likeness]) => likeness),
    ]);
    return { ...query, tree, kinds, words: joinWords([query.id, query.text]) };
  });
  const words = [
    'family', world.name, `L${world.level}`, world.prompt,
    ...Object.values(family.images).flat(),
  ];
  return { ...family, queries, words: joinWords(words) };
}

function splitWords(text) {
  return text.toLowerCase().split(/\W+/).filter(Boolean);
}

function joinWords(texts) {
  return texts.flatMap(splitWords).map(word => ` ${word}`).join('');
}

// Returns whether a typed word names a family, or this query of it.
function isNamed(word, family, query) {
  if (/^\d+$/.test(word)) {
    return word === String(family.number) || word in family.images;
  }
  return `${family.words}${query?.words ?? ''}`.includes(` ${word}`);
}

// Returns the queries of a family that all filters let through, or null.
function filterFamily(family) {
  if (state.levels.size && !state.levels.has(family.world.level)) return null;
  const isFound = query => state.words.every(
    word => isNamed(word, family, query),
  );
  const queries = family.queries.filter(query => isFound(query)
    && (!state.kinds.size || [...state.kinds].some(k => query.kinds.has(k))));
  const isBare = !family.queries.length && !state.kinds.size && isFound(null);
  return queries.length || isBare ? queries : null;
}

function getTone(kinds) {
  if (!kinds.length) return 'valid';
  return `trap k${kindNames.indexOf(kinds[0]) % TONES}`;
}

function makeFigure(family, image, caption, classes) {
  const words = family.images[image].join(' | ');
  const found = state.words.includes(image) ? ' found' : '';
  const button = make(
    'button', { type: 'button', title: `${image}: ${words}` },
    make('img', {
      loading: 'lazy', decoding: 'async', alt: words,
      src: `${family.folder}/${image}.jpg`,
    }),
    make('span', { class: 'id' }, image),
  );
  button.addEventListener('click', () => showDetail(family, image));
  return make(
    'figure', { class: `${classes}${found}`, 'data-image': image },
    button, make('figcaption', {}, caption),
  );
}

// Returns an instruction with a dot of its colour before each colour.
function makePrompt(text) {
  const paragraph = make('p', { class: 'prompt' });
  for (const part of text.split(/\b/)) {
    if (part.toLowerCase() in VIEW.colours) {
      paragraph.append(makeSwatch(part.toLowerCase()));
    }
    paragraph.append(part);
  }
  return paragraph;
}

function makeQuery(family, query) {
  const figure = (...rest) => makeFigure(family, ...rest);
  const strip = query.rest.filter(([, kinds]) => !state.kinds.size
    || kinds.some(kind => state.kinds.has(kind)));
  const section = make(
    'section', { class: 'query', 'data-query': query.id },
    make(
      'h3', {}, query.id, ' ',
      make('span', { class: 'badge' }, family.world.prompt), ' ',
      make('span', { class: 'answers' }, `answer ${query.answers.join(', ')}`),
    ),
    makePrompt(query.text),
    make('div', { class: 'scroll' }, drawGraph(query.tree, query.asks, {
      ...getOptions(), makeFigure: figure, getTone,
    })),
  );
  if (strip.length) {
    section.append(makeStrip('Not met from here', strip, figure));
  }
  return section;
}

function makeStrip(title, images, figure) {
  return make(
    'div', { class: 'strip', style: `--size:${state.size * 0.8}px` },
    make('h4', {}, title),
    ...images.map(([image, kinds]) => figure(
      image, kinds.join(', '), kinds.length ? getTone(kinds) : '',
    )),
  );
}

function getOptions() {
  return {
    size: state.size, isNarrow: NARROW.matches, kinds: state.kinds,
  };
}

function fillCard(card) {
  const { family, queries } = card;
  const { world } = family;
  const count = Object.keys(family.images).length;
  card.replaceChildren(
    make(
      'h2', {}, `Family ${family.number} `,
      make('span', { class: 'badge level' }, `L${world.level}`), ' ',
      make(
        'span', { class: 'world', title: `seed ${world.seed}` },
        `${world.name} · ${count} images${
          world.with_chains ? '' : ' · stored without chains'}`,
      ),
    ),
    ...queries.map(query => makeQuery(family, query)),
  );
  if (!family.queries.length) {
    card.append(makeStrip(
      'The verifier dropped its queries',
      Object.keys(family.images).map(image => [image, []]),
      (...rest) => makeFigure(family, ...rest),
    ));
  }
  card.style.minHeight = '';
}

// Guesses a card's height before it is drawn, so that the scroll bar tells
// the truth.
function guessHeight(queries) {
  const options = getOptions();
  let height_px = 50;
  for (const query of queries) {
    const nodes = chooseNodes(query.tree, options.kinds);
    const strip = query.rest.length ? state.size * 0.8 * ASPECT + 60 : 0;
    height_px += layOut(nodes, options).height_px + strip + 90;
  }
  return height_px;
}

const observer = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      if (!target.childElementCount) fillCard(target);
    } else if (target.childElementCount) {
      target.style.minHeight = `${target.offsetHeight}px`;
      target.replaceChildren();
    }
  }
}, { rootMargin: `${AHEAD_PX}px 0px` });

// Draws all anew after a filter, the size or the screen has changed.
function render() {
  const cards = [];
  let queryCount = 0;
  for (const family of families) {
    const queries = filterFamily(family);
    if (!queries) continue;
    const card = make('article', { class: 'family' });
    Object.assign(card, { family, queries });
    card.style.minHeight = `${guessHeight(queries)}px`;
    cards.push(card);
    queryCount += queries.length;
  }
  observer.disconnect();
  // Columns are as wide as the shortest chains need; longer ones take a row.
  const shortest = Math.min(...cards.map(card => card.family.world.hops));
  const setWidth = (element, hops) => element.style.setProperty(
    '--card', `${getWidth(hops, state.size) + 4}px`,
  );
  if (cards.length) setWidth($('families'), shortest);
  for (const card of cards) {
    const { hops } = card.family.world;
    setWidth(card, hops);
    card.classList.toggle('wide', hops > shortest);
  }
  $('families').replaceChildren(...cards);
  for (const card of cards) observer.observe(card);
  const plural = (n, one, many) => `${n.toLocaleString('en')} ${
    n === 1 ? one : many}`;
  $('count').textContent = `${plural(cards.length, 'family', 'families')}, ${
    plural(queryCount, 'query', 'queries')}`;
  $('none').hidden = cards.length > 0;
  $('clear').hidden = !(
    state.words.length || state.levels.size || state.kinds.size
  );
}

// Shows one image large, with its part in each query of its family.
function showDetail(family, image) {
  const roles = family.queries.flatMap(query => [
    ...query.tree.filter(node => node.image === image).map(node => {
      const place = node.hop ? `hop ${node.hop}` : 'start';
      const part = node.kinds.join(', ') || (
        node.hop === query.asks.length ? 'answer'
          : node.hop ? 'on the chain' : 'query image'
      );
      return [query.id, place, part, getTone(node.kinds)];
    }),
    ...query.rest.filter(([id]) => id === image).map(([, kinds]) => [
      query.id, 'not met', kinds.join(', '), kinds.length ? getTone(kinds) : '',
    ]),
  ]);
  const dialog = $('detail');
  const close = make('button', { class: 'close', 'aria-label': 'Close' }, '×');
  close.addEventListener('click', () => dialog.close());
  const [left, right] = family.images[image];
  dialog.replaceChildren(
    close,
    make('img', {
      src: `${family.folder}/${image}.jpg`, alt: family.images[image].join(),
    }),
    make('h2', {}, `${image} `, make(
      'span', { class: 'world' }, `family ${family.number}, ${
        family.world.name}`,
    )),
    make('p', {}, right ? `${left}, left of ${right}` : left),
    make('table', {}, ...roles.map(([id, place, part, tone]) => make(
      'tr', {},
      make('th', {}, id), make('td', {}, place),
      make('td', { class: tone }, part),
    ))),
  );
  const images = Object.keys(family.images).sort();
  dialog.onkeydown = event => {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turn) return;
    const next = images.indexOf(image) + turn + images.length;
    showDetail(family, images[next % images.length]);
  };
  if (!dialog.open) dialog.showModal();
}

function makeChip(group, value, label, count, classes = '') {
  const box = make('input', { type: 'checkbox' });
  const chip = make(
    'label', { class: `chip ${classes}`, 'data-value': value }, box, label,
    ...(count ? [make('small', {}, count.toLocaleString('en'))] : []),
  );
  box.checked = group.has(value);
  box.addEventListener('change', () => {
    if (box.checked) group.add(value);
    else group.delete(value);
    update();
  });
  return chip;
}

function drawChips() {
  $('levels').replaceChildren(...levels.map(level => makeChip(
    state.levels, level, `L${level}`, 0, 'level',
  )));
  $('kinds').replaceChildren(...kindNames.map(kind => makeChip(
    state.kinds, kind, kind, kindCounts.get(kind), getTone([kind]),
  )));
}

function readWords() {
  state.words = splitWords($('search').value);
}

// Keeps the filters in the address, so that it can be passed on.
function update() {
  readWords();
  const parameters = new URLSearchParams();
  if (state.words.length) parameters.set('find', state.words.join(' '));
  for (const level of state.levels) parameters.append('level', level);
  for (const kind of state.kinds) parameters.append('kind', kind);
  location.replace(`#${parameters}`);
  render();
  scrollTo(0, 0);
}

function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  $('search').value = parameters.get('find') ?? '';
  state.levels = new Set(parameters.getAll('level').map(Number));
  state.kinds = new Set(parameters.getAll('kind'));
  readWords();
  drawChips();
}

function start() {
  const images = families.reduce(
    (sum, family) => sum + Object.keys(family.images).length, 0,
  );
  const [first] = VIEW.worlds;
  const name = VIEW.worlds.length > 1
    ? `${VIEW.worlds.length} worlds` : first.name;
  document.title = name;
  $('title').replaceChildren(name, make(
    'small', {}, `${images.toLocaleString('en')} images`,
  ));
  $('levels').hidden = levels.length < 2;
  $('size').value = state.size;
  readAddress();
  render();
}

$('search').addEventListener('input', update);
$('size').addEventListener('input', () => {
  state.size = Number($('size').value);
  render();
});
$('clear').addEventListener('click', () => {
  location.replace('#');
  readAddress();
  render();
});
NARROW.addEventListener('change', render);
// A click beside the picture closes it.
$('detail').addEventListener('click', event => {
  if (event.target === $('detail')) $('detail').close();
});
document.addEventListener('keydown', event => {
  if (event.key !== '/' || event.target === $('search')) return;
  event.preventDefault();
  $('search').focus();
});
// All places of the image under the pointer stand out.
$('families').addEventListener('pointerover', event => {
  const card = event.target.closest('.family');
  const image = event.target.closest('figure')?.dataset.image;
  for (const figure of card?.querySelectorAll('figure') ?? []) {
    figure.classList.toggle('same', figure.dataset.image === image);
  }
});
start();
