"""Drives a headless Chromium over its own protocol, with nothing installed.

Chromium reads and writes JSON messages over two pipes that it inherits
(`--remote-debugging-pipe`). Clicks and keys are those of the system: what
another element covers cannot be clicked.
"""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

# As Debian, Ubuntu and Google name it.
NAMES = ('chromium', 'chromium-browser', 'google-chrome')
TIMEOUT_SECS = 60
_FLAGS = (
  '--headless=new',
  '--disable-gpu',
  '--disable-extensions',
  '--no-first-run',
  # The kernel's sandbox is closed to root and in most containers.
  '--no-sandbox',
  '--disable-dev-shm-usage',
  '--remote-debugging-pipe',
)


@contextlib.contextmanager
def open_browser():
  """Starts Chromium, yields its one page and ends it again."""
  program = next(filter(None, map(shutil.which, NAMES)), None)
  if program is None:
    raise RuntimeError(
      f'no browser ({", ".join(NAMES)}) is on the PATH: run'
      " 'sudo apt-get install -y chromium', or `make setup-test`"
    )
  # Chromium reads from 3 and writes to 4.
  to_read, to_write = os.pipe()
  from_read, from_write = os.pipe()
  command = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
  with tempfile.TemporaryDirectory(
    prefix='vhop_jax_browser_', ignore_cleanup_errors=True
  ) as home:
    process = subprocess.Popen(
      [
        *('bash', '-c', command, 'bash', program, *_FLAGS),
        *(f'--user-data-dir={home}', 'about:blank'),
      ],
      env={**os.environ, 'IN': str(to_read), 'OUT': str(from_write)},
      pass_fds=(to_read, from_write),
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
      yield Page(to_write, from_read)
    finally:
      process.terminate()
      process.wait()
      os.close(to_write)
      os.close(from_read)


class Page:
  """Is one page of a browser."""

  def __init__(self, to_browser, from_browser):
    """Attaches to the page that the browser starts with."""
    self._to, self._from = to_browser, from_browser
    self._buffer = b''
    self._count = 0
    self._session = None
    targets = self.call('Target.getTargets')['targetInfos']
    [target] = [t for t in targets if t['type'] == 'page']
    self._session = self.call(
      'Target.attachToTarget', targetId=target['targetId'], flatten=True
    )['sessionId']
    for domain in ('Page', 'Runtime'):
      self.call(f'{domain}.enable')

  def call(self, method, **parameters):
    """Sends one command of the DevTools protocol and returns its result."""
    self._count += 1
    message = {'id': self._count, 'method': method, 'params': parameters}
    if self._session:
      message['sessionId'] = self._session
    os.write(self._to, json.dumps(message).encode() + b'\0')
    while True:
      answer = self._read()
      if answer.get('method') == 'Runtime.exceptionThrown':
        details = answer['params']['exceptionDetails']
        raise RuntimeError(details.get('exception', {}).get('description'))
      if answer.get('id') == self._count:
        if 'error' in answer:
          raise RuntimeError(f'{method}: {answer["error"]["message"]}')
        return answer['result']

  def _read(self):
    """Returns the browser's next message."""
    while b'\0' not in self._buffer:
      if not select.select([self._from], [], [], TIMEOUT_SECS)[0]:
        raise TimeoutError(f'Chromium is silent for {TIMEOUT_SECS} s')
      data = os.read(self._from, 1 << 20)
      if not data:
        raise RuntimeError('Chromium has ended')
      self._buffer += data
    message, _, self._buffer = self._buffer.partition(b'\0')
    return json.loads(message)

  def open(self, path, width_px=1440, height_px=900, fragment=''):
    """Opens a file in a window of a size and waits until it is loaded."""
    self.call(
      'Emulation.setDeviceMetricsOverride',
      width=width_px,
      height=height_px,
      deviceScaleFactor=1,
      mobile=False,
    )
    # Another page in between: a change of the fragment alone loads nothing.
    for address, rest in (
      ('about:blank', ''),
      (pathlib.Path(path).as_uri(), fragment),
    ):
      self.call('Page.navigate', url=address + rest)
      self.wait(
        f'location.href.startsWith({json.dumps(address)})'
        ' && document.readyState === "complete"'
      )

  def evaluate(self, expression):
    """Returns the value of a JavaScript expression."""
    result = self.call(
      'Runtime.evaluate',
      expression=expression,
      returnByValue=True,
      awaitPromise=True,
    )
    if 'exceptionDetails' in result:
      details = result['exceptionDetails']
      raise RuntimeError(details.get('exception', {}).get('description'))
    return result['result'].get('value')

  def wait(self, expression):
    """Waits until a JavaScript expression is true."""
    end = time.monotonic() + TIMEOUT_SECS
    while not self.evaluate(f'!!({expression})'):
      if time.monotonic() > end:
        raise TimeoutError(f'never true: {expression}')
      time.sleep(0.02)

  def click(self, selector):
    """Clicks into the middle of the first element that matches.

    Raises:
      RuntimeError: there is none, or another element covers it.
    """
    spot = self.evaluate(
      f"""(() => {{
        const element = document.querySelector({json.dumps(selector)});
        if (!element) return null;
        element.scrollIntoView({{block: 'center', inline: 'center'}});
        const box = element.getBoundingClientRect();
        const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
        const top = document.elementFromPoint(x, y);
        return element.contains(top) ? [x, y] : null;
      }})()"""
    )
    if spot is None:
      raise RuntimeError(f'nothing to click at {selector}')
    for kind in ('mousePressed', 'mouseReleased'):
      self.call(
        'Input.dispatchMouseEvent',
        type=kind,
        x=spot[0],
        y=spot[1],
        button='left',
        clickCount=1,
      )

  def type(self, selector, text):
    """Replaces what stands in a field by typing."""
    self.click(selector)
    self.evaluate(f'document.querySelector({json.dumps(selector)}).select()')
    if text:
      self.call('Input.insertText', text=text)
    else:
      self.press('Backspace', 8)

  def press(self, key, code):
    """Presses one key, given by its name and its Windows code."""
    for kind in ('rawKeyDown', 'keyUp'):
      self.call(
        'Input.dispatchKeyEvent',
        type=kind,
        key=key,
        code=key,
        windowsVirtualKeyCode=code,
      )

  def screenshot(self, path):
    """Writes what is on the screen into a PNG file."""
    data = self.call('Page.captureScreenshot')['data']
    pathlib.Path(path).write_bytes(base64.b64decode(data))
