'use strict';
// Elements of the page, and the width of text. Text is inserted as text, never as HTML.

const json = id => JSON.parse(document.getElementById(id).textContent);
const SVG = 'http://www.w3.org/2000/svg';
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}
const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const pen = document.createElement('canvas').getContext('2d');
pen.font = '12px Helvetica, Arial, sans-serif';
const widest = texts => Math.max(0, ...texts.map(text => pen.measureText(text).width));
// The text, or the beginning of it that fits into `room` pixels.
function fitted(text, room) {
  if (widest([text]) <= room) return text;
  let count = text.length;
  while (count > 1 && widest([text.slice(0, count) + '…']) > room) --count;
  return text.slice(0, count) + '…';
}

// Six colours. Further items differ by their dashes.
const colour = i => `var(--c${i % 6})`;
const dashes = i => [null, '7 3', '2 3'][Math.floor(i / 6) % 3];

// Content wider than the page scrolls in a region of its own, also by keys. Shadows show on which sides
// there is more.
function scrolling(label, content) {
  const inner = html('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label}, content);
  const outer = html('div', {class: 'scrolls'}, inner);
  const tell = () => {
    outer.classList.toggle('before', inner.scrollLeft > 1);
    outer.classList.toggle('after', inner.scrollLeft + inner.clientWidth < inner.scrollWidth - 1);
  };
  inner.addEventListener('scroll', tell);
  const watch = new ResizeObserver(tell);
  watch.observe(inner);
  watch.observe(content);
  return outer;
}
