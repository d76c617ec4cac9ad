// Builds elements. Names of layers and features are untrusted: a text enters the page as a text
// node or as the value of an attribute, never as markup.
'use strict';

const SVG = document.querySelector('svg').namespaceURI;

// A control character other than a tab or a line break becomes U+FFFD.
function printable(text) {
  return String(text).replace(/[\0-\x08\x0b-\x1f\x7f]/g, '\ufffd');
}

// Sets the attributes that have a value.
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined && value !== '') node.setAttribute(name, printable(value));
  return node;
}

// Appends nodes and texts; leaves out empty ones.
function fill(node, attributes, children) {
  set(node, attributes);
  for (const child of children.flat())
    if (child) node.append(child instanceof Node ? child : printable(child));
  return node;
}

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Calls draw(width) now and whenever the width of `box` changes, once the box is in the page.
function drawAtWidth(box, least, draw) {
  let width = 0;
  const update = () => {
    const room = Math.max(least, box.clientWidth);
    if (room !== width) draw(width = room);
  };
  new ResizeObserver(update).observe(box);
  return update;
}
