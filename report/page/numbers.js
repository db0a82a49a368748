// Numbers as text, ticks of axes, and functions of lists of numbers.

// Five digits. `brief`: about three.
function shown(value, unit) {
  if (value === null || value === undefined) return 'not finite';
  const size = Math.abs(value);
  let text;
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) text = value.toExponential(3);
  else if (size >= 1000) text = value.toFixed(0);
  else text = String(+value.toPrecision(5));
  return unit ? `${text} ${unit}` : text;
}
function brief(value) {
  if (value === null || value === undefined) return '';
  const size = Math.abs(value);
  return Number.isInteger(value) ? String(value) : size >= 1000 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : String(value.toPrecision(3));
}
const MIB = 1024 * 1024;
const mib = bytes => bytes / MIB >= 100 ? (bytes / MIB).toFixed(0) : (bytes / MIB).toFixed(2);
function bytes(count) {
  for (const [power, unit] of [[4, 'TiB'], [3, 'GiB'], [2, 'MiB'], [1, 'KiB']]) {
    const size = 1024 ** power;
    if (count >= size) return `${(count / size).toFixed(2)} ${unit}`;
  }
  return `${count} B`;
}

// Round values on an axis from low to high, about `count` of them, and at least two.
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) list.push(i * step);
  return list.length > 1 || count > 8 ? list : ticks(low, high, count + 1);
}
function logTicks(low, high) {
  const list = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
    for (const f of [1, 2, 5]) {
      const value = f * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) list.push(value);
    }
  }
  return list.length >= 2 ? list : ticks(low, high, 5);
}
// The value with the digits that neighbouring ticks need to differ.
function tickText(value, list) {
  const step = list.length > 1 ? Math.min(...list.slice(1).map((v, i) => v - list[i])) : Math.abs(value);
  if (value === 0 || Math.abs(value) < step * 1e-6) return '0';
  if (Math.abs(value) >= 1e7 || step < 1e-6) {
    return value.toExponential(Math.min(4, Math.max(0, Math.ceil(Math.log10(Math.abs(value) / step) - 1e-9))));
  }
  if (list.length < 2) return String(+value.toPrecision(4));
  return value.toFixed(Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));
}

const isNumber = value => value !== null && value !== undefined;
const least = list => list.reduce((a, b) => Math.min(a, b), Infinity);
const most = list => list.reduce((a, b) => Math.max(a, b), -Infinity);
// An exponential moving average without a bias towards 0 at its beginning.
function smoothed(values, weight) {
  let sum = 0, count = 0;
  return values.map(value => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    count = weight * count + (1 - weight);
    return sum / count;
  });
}
function rolling(values, window) {
  const half = Math.floor(window / 2);
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter(isNumber);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}
// The end of an axis that spikes shall not set: a quarter above the largest median of nine neighbours,
// if the largest value is more than twice that median; otherwise null. A peak of five iterations is no
// spike. The values come in intervals; an interval of fewer than five values has no spikes.
function cutAbove(intervals) {
  const usual = most(intervals.map(interval => {
    const list = interval.filter(isNumber);
    if (list.length < 5) return most(list);
    return most(list.map((_, i) => {
      const near = list.slice(Math.max(0, i - 4), i + 5).sort((a, b) => a - b);
      return near[Math.floor((near.length - 1) / 2)];
    }));
  }));
  return usual > 0 && most(intervals.flat().filter(isNumber)) > 2 * usual ? 1.25 * usual : null;
}
