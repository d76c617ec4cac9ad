// Chooses the ticks of an axis.

// Round values from `low` to `high`, about `count` of them, in steps of 1, 2 or 5 times a power of 10.
function axisTicks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(factor => factor * power >= raw * (1 - 1e-9)) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(i * step);
  return ticks;
}

// Decimals that distinguish adjacent ticks.
function tickDecimals(ticks) {
  if (ticks.length < 2) return 2;
  return Math.max(0, -Math.floor(Math.log10(ticks[1] - ticks[0]) + 1e-9));
}

// The texts of ticks in seconds, with the unit of the last visible second.
function secondsTexts(ticks, last) {
  const [scale, unit] = last >= 1 ? [1, 's'] : last >= 1e-3 ? [1e3, 'ms'] : [1e6, 'us'];
  const decimals = tickDecimals(ticks.map(tick => tick * scale));
  return ticks.map(tick => Math.abs(tick) < 1e-12 ? '0' : (tick * scale).toFixed(decimals) + ' ' + unit);
}
