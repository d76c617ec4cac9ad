// Three independent parts: the box in which things explain themselves under the pointer, the timeline's
// zoom and the cursor of curves.
'use strict';
const tip = document.getElementById('tip');
const explain = (text, event) => {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = Math.min(event.clientY + 14, innerHeight - box.height - 4) + 'px';
};
for (const part of document.querySelectorAll('[data-tip]')) {
  part.removeAttribute('title');
  part.onpointermove = event => explain(part.dataset.tip, event);
  part.onpointerleave = () => explain('');
}

const drawTimeline = (section, svg) => {
  const total = +svg.dataset.seconds, gutter = +svg.dataset.gutter, right = +svg.dataset.right;
  const bottom = svg.dataset.bottom, top = svg.dataset.top, height = svg.viewBox.baseVal.height;
  const brush = svg.querySelector('.brush'), axis = svg.querySelector('.axis');
  const spans = [...svg.querySelectorAll('.span')].map(group => {
    const [title, rect, text] = ['title', 'rect', 'text'].map(name => group.querySelector(name));
    const words = title.textContent;
    title.remove();
    group.onpointermove = event => start === null && explain(words, event);
    group.onpointerleave = () => explain('');
    return {group, rect, text, begin: +group.dataset.b, end: +group.dataset.e};
  });
  const ends = [...svg.querySelectorAll('.end')];
  let from = 0, to = total, width = 0, start = null;
  const x = seconds => gutter + (seconds - from) / (to - from) * (width - gutter - right);
  const seconds = pixel => from + Math.min(1, Math.max(0, (pixel - gutter) / (width - gutter - right))) * (to - from);
  const pixel = event => event.clientX - svg.getBoundingClientRect().left;
  const set = (node, values) => { for (const name in values) node.setAttribute(name, values[name]); };
  const make = (name, values, text) => {
    const node = document.createElementNS(svg.namespaceURI, name);
    set(node, values);
    if (text) node.textContent = text;
    axis.append(node);
  };

  const drawAxis = () => {
    axis.replaceChildren();
    const raw = (to - from) / Math.max(3, Math.min(9, width / 120)), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find(factor => factor * power >= raw * .999) * power;
    const [scale, unit] = to >= 1 ? [1, 's'] : to >= 1e-3 ? [1e3, 'ms'] : [1e6, 'us'];
    const digits = Math.max(0, -Math.floor(Math.log10(step * scale) + 1e-9));
    for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-9); ++i) {
      const at = x(i * step);
      make('line', {x1: at, x2: at, y1: top, y2: bottom});
      make('text', {x: Math.min(at, width - right - 12), y: +bottom + 17}, i ? (i * step * scale).toFixed(digits) + ' ' + unit : '0');
    }
  };
  const draw = () => {
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    for (const track of svg.querySelectorAll('.track')) track.setAttribute('width', width - gutter - right);
    for (const span of spans) {
      const left = Math.max(gutter, x(span.begin)), end = Math.min(width - right, x(span.end)), room = end - left;
      span.group.style.display = end <= gutter || left >= width - right ? 'none' : '';
      if (room < 0) continue;
      set(span.rect, {x: left, width: Math.max(.4, room - .6)});
      if (!span.text) continue;
      span.text.setAttribute('x', left + room / 2);
      span.text.setAttribute('display', room > 6.5 * span.text.textContent.length + 4 ? 'inline' : 'none');
    }
    for (const mark of ends) {
      const at = x(+mark.dataset.at);
      mark.style.display = at < gutter || at > width - right + 1 ? 'none' : '';
      set(mark.firstChild, {x1: at, x2: at});
      mark.lastChild.setAttribute('x', at - 5);
    }
    drawAxis();
  };
  const zoom = (a, b) => {
    const least = total / 5000, span = Math.min(total, Math.max(b - a, least));
    from = Math.min(Math.max(0, (a + b - span) / 2), total - span);
    to = from + span;
    draw();
  };
  const scale = (factor, middle) => zoom(middle - (middle - from) / factor, middle + (to - middle) / factor);

  svg.onpointerdown = event => {
    if (event.button || pixel(event) < gutter) return;
    start = pixel(event);
    svg.setPointerCapture(event.pointerId);
    explain('');
  };
  svg.addEventListener('pointermove', event => {
    if (start === null) return;
    const now = Math.min(width - right, Math.max(gutter, pixel(event)));
    set(brush, {x: Math.min(start, now), width: Math.abs(now - start)});
  });
  svg.onpointerup = event => {
    if (start === null) return;
    const [a, b] = [seconds(start), seconds(pixel(event))].sort((p, q) => p - q), far = Math.abs(pixel(event) - start) > 5;
    start = null;
    brush.setAttribute('width', 0);
    if (far) zoom(a, b);
  };
  svg.onpointercancel = () => { start = null; brush.setAttribute('width', 0); };
  svg.ondblclick = () => zoom(0, total);
  svg.addEventListener('wheel', event => {
    if (event.ctrlKey || event.metaKey) scale(event.deltaY < 0 ? 1.25 : .8, seconds(pixel(event)));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const move = (event.deltaX || event.deltaY) / width * (to - from);
      zoom(from + move, to + move);
    } else return;
    event.preventDefault();
  }, {passive: false});
  for (const button of section.querySelectorAll('[data-zoom]'))
    button.onclick = () => +button.dataset.zoom ? scale(+button.dataset.zoom, (from + to) / 2) : zoom(0, total);
  for (const part of section.querySelectorAll('[hidden]')) part.hidden = false;
  new ResizeObserver(() => {
    const room = Math.max(320, svg.parentElement.clientWidth);
    if (room === width) return;
    width = room;
    draw();
  }).observe(svg.parentElement);
};

const drawCurves = section => {
  const {scale, curves} = JSON.parse(section.querySelector('script').textContent);
  const svg = section.querySelector('.plot svg'), cursor = svg.querySelector('.cursor'), plot = svg.parentElement;
  const height = svg.viewBox.baseVal.height, margin = svg.viewBox.baseVal.width - scale.right;
  const places = [...svg.querySelectorAll('line, text, circle')].flatMap(node =>
    ['x', 'x1', 'x2', 'cx'].filter(name => node.hasAttribute(name)).map(name => [node, name, +node.getAttribute(name)]));
  let right = 0;
  // What stands right of the axis moves with the width that there is; letters and lines keep their size.
  plot.style.maxWidth = 'none';
  new ResizeObserver(() => {
    const room = Math.max(280, plot.clientWidth) - margin;
    if (room === right) return;
    right = room;
    const stretch = (right - scale.left) / (scale.right - scale.left);
    svg.setAttribute('viewBox', `0 0 ${right + margin} ${height}`);
    for (const [node, name, x] of places)
      node.setAttribute(name, x < scale.left ? x : scale.left + (x - scale.left) * stretch);
    for (const path of svg.querySelectorAll('path'))
      path.setAttribute('transform', `translate(${scale.left * (1 - stretch)} 0) scale(${stretch} 1)`);
  }).observe(plot);
  const nearest = (points, step) => points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const share = (x - scale.left) / (right - scale.left);
    if (share < -.01 || share > 1.01) return svg.onpointerleave();
    const [step] = nearest(curves[0].points, scale.first + share * (scale.last - scale.first));
    const at = scale.left + (step - scale.first) / (scale.last - scale.first) * (right - scale.left);
    cursor.setAttribute('x1', at);
    cursor.setAttribute('x2', at);
    cursor.style.visibility = 'visible';
    const words = curves.map(({name, points}) => {
      const [when, value] = nearest(points, step);
      return `${name} ${value.toFixed(4)}` + (when === step ? '' : ` at step ${when}`);
    });
    explain([`step ${step}`, ...words].join('\n'), event);
  };
  svg.onpointerleave = () => { cursor.style.visibility = 'hidden'; explain(''); };
};

const timeline = document.getElementById('timeline');
if (timeline) drawTimeline(timeline, timeline.querySelector('.plot svg'));
for (const section of document.querySelectorAll('.curve')) drawCurves(section);
