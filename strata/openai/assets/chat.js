'use strict';
// Text of a model becomes text nodes only, never HTML.
const part = id => document.getElementById(id);
const models = new Map();  // by name, as /v1/models lists them
let messages = [];         // of the conversation, as the API takes them
let running = null;        // AbortController of the answer that is being written

const element = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const percent = share => share >= .9995 ? '100 %' : share < .001 ? '< 0.1 %' : (100 * share).toFixed(1) + ' %';
const visible = text => text.replace(/ /g, '\u00b7').replace(/\n/g, '\u21b5').replace(/\t/g, '\u21e5');

// Requests

const headers = () => {
  const key = sessionStorage.getItem('key');
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
};

const problemOf = async response => {
  const text = await response.text();
  try { return JSON.parse(text).error.message; } catch { return text || 'status ' + response.status; }
};

const loadModels = async () => {
  const response = await fetch('/v1/models', {headers: headers()});
  part('key-field').hidden = response.status !== 401;
  if (!response.ok) throw new Error(await problemOf(response));
  models.clear();
  for (const model of (await response.json()).data) models.set(model.id, model);
  part('model').replaceChildren(...[...models.keys()].map(name => element('option', '', name)));
  describeModel();
};

const talks = () => models.get(part('model').value)?.has_chat_template ?? true;

const describeModel = () => {
  part('prompt').placeholder = talks() ? 'Write a message' : 'Write the beginning of a text';
  part('hint').textContent = talks() ? 'Answers appear as the model writes them.' : 'The model continues your text.';
};

const requestOf = prompt => {
  const shared = {model: part('model').value, stream: true, stream_options: {include_usage: true},
                  temperature: +part('temperature').value, max_tokens: +part('max-tokens').value};
  return talks() ? ['/v1/chat/completions', {...shared, messages, logprobs: true, top_logprobs: 5}]
                 : ['/v1/completions', {...shared, prompt, logprobs: 5}];
};

// The events of a stream, as objects.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith('data: ') && line !== 'data: [DONE]') yield JSON.parse(line.slice(6));
  }
}

// The tokens of a chunk: {text, logprob, alternatives: [[name, logprob]]}.
const tokensOf = choice => {
  const text = choice.delta ? choice.delta.content ?? '' : choice.text;
  const chat = choice.logprobs?.content, plain = choice.logprobs;
  if (chat?.length) {
    const {logprob, token, top_logprobs} = chat[0];
    return {text, token, logprob, alternatives: top_logprobs.map(each => [each.token, each.logprob])};
  }
  if (plain?.tokens?.length)
    return {text, token: plain.tokens[0], logprob: plain.token_logprobs[0],
            alternatives: Object.entries(plain.top_logprobs[0] ?? {})};
  return {text};
};

// The conversation

const atEnd = () => part('log').scrollHeight - part('log').scrollTop - part('log').clientHeight < 60;
const toEnd = () => { part('log').scrollTop = part('log').scrollHeight; };

const addTurn = (className, text) => {
  part('empty').hidden = true;
  const turn = element('div', 'turn ' + className, text);
  part('turns').append(turn);
  toEnd();
  return turn;
};

const addToken = (turn, {text, token, logprob, alternatives}) => {
  if (text === '') return;
  const span = element('span', 'token', text);
  if (logprob !== undefined) {
    span.style.setProperty('--doubt', (.75 * (1 - Math.exp(logprob))).toFixed(3));
    span.score = {token, logprob, alternatives};
  }
  turn.append(span);
};

const finishTurn = (turn, count, times, reason) => {
  turn.classList.remove('waiting');
  const seconds = (times.last - times.first) / 1000;
  const speed = count > 1 && seconds > 0 ? `, ${((count - 1) / seconds).toFixed(1)} tokens/s` : '';
  const first = times.first ? `, first after ${Math.round(times.first - times.start)} ms` : '';
  turn.append(element('p', 'note', `${count} token${count === 1 ? '' : 's'}${speed}${first}${reason}`));
};

const answer = async (turn, prompt) => {
  const times = {start: performance.now(), first: 0, last: 0}, conversation = messages;
  let text = '', count = 0, reason = '', failed = false;
  try {
    const [path, body] = requestOf(prompt);
    const response = await fetch(path, {method: 'POST', headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!response.ok) throw new Error(await problemOf(response));
    for await (const chunk of eventsOf(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) count = chunk.usage.completion_tokens;
      if (!chunk.choices?.length) continue;
      const choice = chunk.choices[0], follow = atEnd(), token = tokensOf(choice);
      if (token.logprob !== undefined || token.text !== '') {
        times.last = performance.now();
        times.first ||= times.last;
        ++count;
      }
      addToken(turn, token);
      text += token.text;
      if (choice.finish_reason === 'length') reason = ', stopped at max tokens';
      if (follow) toEnd();
    }
  } catch (error) {
    failed = true;
    if (error.name === 'AbortError') reason = ', stopped';
    else turn.append(element('p', 'note error', error.message));
  }
  finishTurn(turn, count, times, reason);
  if (failed && text === '') conversation.pop();  // the message without an answer
  else conversation.push({role: 'assistant', content: text});
};

const setRunning = controller => {
  running = controller;
  part('stop').hidden = !controller;
  part('send').hidden = !!controller;
};

const send = async () => {
  const prompt = part('prompt').value;
  if (!prompt.trim() || running) return;
  part('prompt').value = '';
  grow();
  addTurn('user', prompt);
  messages.push({role: 'user', content: prompt});
  setRunning(new AbortController());
  await answer(addTurn('assistant waiting', ''), prompt);
  setRunning(null);
  toEnd();
  part('prompt').focus();
};

const clear = () => {
  running?.abort();
  messages = [];
  part('turns').replaceChildren(part('empty'));
  part('empty').hidden = false;
};

// Probabilities under the pointer

const showTip = (span, x, y) => {
  const tip = part('tip'), {token, logprob, alternatives} = span.score;
  const all = alternatives.some(([name]) => name === token) ? alternatives : [[token, logprob], ...alternatives];
  const sorted = [...all].sort((a, b) => b[1] - a[1]);
  tip.replaceChildren(element('div', '', `${percent(Math.exp(logprob))} likely`), ...sorted.map(([name, score]) => {
    const row = element('div', 'alternative' + (name === token ? ' picked' : '')), bar = element('div', 'bar'), fill = element('i');
    fill.style.width = 100 * Math.exp(score) + '%';
    bar.append(fill);
    row.append(element('span', 'name', visible(name)), element('span', 'share', percent(Math.exp(score))), bar);
    return row;
  }));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x - 24, innerWidth - box.width - 8)) + 'px';
  tip.style.top = (y + box.height + 26 < innerHeight ? y + 20 : Math.max(8, y - box.height - 14)) + 'px';
};
const hideTip = () => { part('tip').hidden = true; };

const grow = () => {
  const prompt = part('prompt');
  prompt.style.height = 'auto';
  prompt.style.height = prompt.scrollHeight + 'px';
};

part('turns').addEventListener('pointermove', event => {
  event.target.score ? showTip(event.target, event.clientX, event.clientY) : hideTip();
});
part('turns').addEventListener('pointerleave', hideTip);
part('log').addEventListener('scroll', hideTip);
part('form').addEventListener('submit', event => { event.preventDefault(); send(); });
part('prompt').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
part('prompt').addEventListener('input', grow);
part('stop').addEventListener('click', () => running?.abort());
part('clear').addEventListener('click', clear);
part('model').addEventListener('change', () => { clear(); describeModel(); });
part('temperature').addEventListener('input', () => { part('temperature-shown').value = (+part('temperature').value).toFixed(2); });
part('shade').addEventListener('change', () => part('turns').classList.toggle('shaded', part('shade').checked));
const useKey = () => { sessionStorage.setItem('key', part('key').value); start(); };
part('use-key').addEventListener('click', useKey);
part('key').addEventListener('keydown', event => { if (event.key === 'Enter') { event.preventDefault(); useKey(); } });
addEventListener('keydown', event => { if (event.key === 'Escape') running?.abort(); });

const start = () => loadModels().catch(error => { part('hint').textContent = error.message; });
start();
