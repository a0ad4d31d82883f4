'use strict';
// Draws the tree of all that one query meets: columns are hops, the first row
// is the chain to the answer, and below an image's successor on it stands
// whatever else shows the carried object.

const NODE_FIELDS = [
  'image', 'parent', 'carried', 'relation', 'other', 'colour', 'kinds', 'hop',
];
const ASPECT = 2 / 3; // Of every image: height by width.
const CAPTION_PX = 30;
const ROW_GAP_PX = 10;
// What lies between two hops: across where they are columns, down where they
// are rows, for which a narrow screen has room.
const COLUMN_GAP_PX = 92;
const LINE_GAP_PX = 100;
const HEAD_PX = 38;
const BEND_PX = 6;
const LABEL_PX = 16; // How far into the gap an arrow's words begin.
const SVG = 'http://www.w3.org/2000/svg';

function readNode(row) {
  return Object.fromEntries(NODE_FIELDS.map((name, i) => [name, row[i]]));
}

// Makes an element; children that are strings become text, never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Returns the nodes to draw: valid chains, and of the rest those of a chosen
// kind with all that leads to them.
function chooseNodes(nodes, kinds) {
  if (!kinds.size) return nodes;
  const kept = new Set();
  nodes.forEach((node, i) => {
    if (node.kinds.length && !node.kinds.some(kind => kinds.has(kind))) return;
    for (; i >= 0; i = nodes[i].parent) kept.add(i);
  });
  const places = [...kept].sort((a, b) => a - b);
  const moved = new Map(places.map((old, i) => [old, i]));
  return places.map(i => (
    { ...nodes[i], parent: moved.get(nodes[i].parent) ?? -1 }
  ));
}

// Returns the row of each node. A node's first successor stands beside it, the
// others where all columns that they and what follows them need are free. So
// no two lines cross.
function placeNodes(nodes) {
  const successors = nodes.map(() => []);
  nodes.forEach((node, i) => {
    if (node.parent >= 0) successors[node.parent].push(i);
  });
  const last = nodes.map(node => node.hop);
  for (let i = nodes.length - 1; i > 0; i--) {
    const { parent } = nodes[i];
    last[parent] = Math.max(last[parent], last[i]);
  }
  const rank = i => (
    (nodes[i].kinds.length ? 1000 : 0) + last[i] - nodes[i].hop
  );
  const rows = [];
  const used = []; // The lowest row taken in each column.
  const place = (i, row) => {
    rows[i] = used[nodes[i].hop] = row;
    const ordered = successors[i].sort((a, b) => rank(a) - rank(b));
    ordered.forEach((next, n) => {
      let free = row;
      for (let hop = nodes[next].hop; n && hop <= last[next]; hop++) {
        free = Math.max(free, (used[hop] ?? -1) + 1);
      }
      place(next, free);
    });
  };
  place(0, 0);
  return rows;
}

// Returns where everything of a tree stands, in pixels.
function layOut(nodes, { size, isNarrow }) {
  const rows = placeNodes(nodes);
  const height = Math.round(size * ASPECT);
  const step = isNarrow
    ? { hop: height + CAPTION_PX + LINE_GAP_PX, row: size + ROW_GAP_PX }
    : { hop: size + COLUMN_GAP_PX, row: height + CAPTION_PX + ROW_GAP_PX };
  const spots = nodes.map((node, i) => {
    const along = node.hop * step.hop;
    const across = rows[i] * step.row;
    return isNarrow
      ? { x: across, y: along } : { x: along, y: across + HEAD_PX };
  });
  return {
    spots,
    step,
    height,
    width_px: Math.max(...spots.map(spot => spot.x)) + size,
    height_px: Math.max(...spots.map(spot => spot.y)) + height + CAPTION_PX,
  };
}

// Returns the path of an arrow between two spots.
function drawArrow(from, to, { size, height, isNarrow }) {
  if (isNarrow) {
    const x = to.x + size / 2;
    const start = `M${from.x + size / 2} ${from.y + height + CAPTION_PX}`;
    const turn = from.y + height + CAPTION_PX + 22;
    const bend = to.x === from.x
      ? '' : `V${turn}H${x - BEND_PX}q${BEND_PX} 0 ${BEND_PX} ${BEND_PX}`;
    return `${start}${bend}V${to.y - 2}m-4 -6l4 6l4 -6`;
  }
  const y = to.y + height / 2;
  const start = `M${from.x + size} ${from.y + height / 2}`;
  const turn = from.x + size + 10;
  const bend = to.y === from.y
    ? '' : `H${turn}V${y - BEND_PX}q0 ${BEND_PX} ${BEND_PX} ${BEND_PX}`;
  return `${start}${bend}H${to.x - 2}m-6 -4l6 4l-6 4`;
}

function makeSwatch(colour) {
  const value = VIEW.colours[colour];
  return make('i', {
    class: 'swatch', style: value ? `background:${value}` : 'display:none',
  });
}

// Returns the words on an arrow: what is carried, and what it stands beside.
function makeLabel(node, tone) {
  return make(
    'div', { class: `label ${tone}` },
    make('div', { class: 'carried' }, node.carried),
    make(
      'div', { class: 'other' },
      `${node.relation} `, makeSwatch(node.colour), node.other,
    ),
  );
}

// Returns what a hop asks for, as far as the prompt says it.
function makeHead(ask, hop) {
  const [relation, colour] = ask;
  return make(
    'div', { class: 'head' },
    make('b', {}, `hop ${hop}`), relation ? ` ${relation} ` : '',
    ...(colour ? [makeSwatch(colour), colour] : []),
  );
}

// Returns how wide the tree of so many hops is where hops are columns.
function getWidth(hops, size) {
  return hops * (size + COLUMN_GAP_PX) + size;
}

// Draws a query's tree.
//   nodes: of the tree, the query image first.
//   asks: relation and colour of each hop, '' where the prompt says nothing.
//   options: size, isNarrow, kinds (a Set), found (ids to point out),
//     makeFigure(image, caption, classes), getTone(kinds).
function drawGraph(nodes, asks, options) {
  const { size, isNarrow } = options;
  const shown = chooseNodes(nodes, options.kinds);
  const { spots, step, height, width_px, height_px } = layOut(shown, options);
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('width', width_px);
  svg.setAttribute('height', height_px);
  svg.setAttribute('aria-hidden', 'true');
  const graph = make('div', {
    class: 'graph',
    style: `width:${width_px}px;height:${height_px}px`,
  }, svg);
  asks.forEach((ask, i) => {
    const head = makeHead(ask, i + 1);
    const along = (i + 1) * step.hop;
    head.style.cssText = isNarrow
      ? `left:${size / 2 + 8}px;top:${along - LINE_GAP_PX}px`
      : `left:${along - COLUMN_GAP_PX + LABEL_PX}px;top:0`;
    graph.append(head);
  });
  shown.forEach((node, i) => {
    const spot = spots[i];
    const tone = options.getTone(node.kinds);
    const isLast = node.hop === asks.length;
    const caption = i === 0 ? node.other
      : node.kinds.join(', ') || (isLast ? 'answer' : '');
    const figure = options.makeFigure(node.image, caption, tone);
    figure.style.cssText = `left:${spot.x}px;top:${spot.y}px;width:${size}px`;
    graph.append(figure);
    if (i === 0) return;
    const from = spots[node.parent];
    const arrow = document.createElementNS(SVG, 'path');
    arrow.setAttribute('d', drawArrow(from, spot, { size, height, isNarrow }));
    arrow.setAttribute('class', tone);
    // The chain to the answer lies on top.
    svg[node.kinds.length ? 'prepend' : 'append'](arrow);
    const label = makeLabel(node, tone);
    label.style.cssText = isNarrow
      ? `left:${spot.x}px;bottom:${height_px - spot.y + 9}px;width:${size}px`
      : `left:${spot.x - COLUMN_GAP_PX + LABEL_PX}px;top:${spot.y + height / 2}px;`
        + `width:${COLUMN_GAP_PX - LABEL_PX - 10}px`;
    graph.append(label);
  });
  return graph;
}
