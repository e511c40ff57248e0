"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);

  // -- making elements; text only ever becomes text --------------------------------------------------------------

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function drawn(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function percent(p) {
    if (p === undefined || p === null) return "–";
    // Spaces at which no line breaks.
    if (p === 0 || p === 1) return `${100 * p}\u00a0%`;
    if (p < 0.0001) return "<\u00a00.01\u00a0%";
    if (p > 0.9999) return ">\u00a099.99\u00a0%";
    return `${(100 * p).toPrecision(p >= 0.9995 ? 4 : 3)}\u00a0%`;
  }

  const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
  const seen = (text) => text.replaceAll(" ", "␣");
  const quoted = (token) => (token.special ? token.text : `“${seen(token.text)}”`);

  // -- numbers ---------------------------------------------------------------------------------------------------

  function numbers() {
    const n = data.numbers;
    const tile = (name, value, note = "") =>
      $("numbers").append(
        element("div", {}, element("dt", {}, name), element("dd", {}, value, note ? element("small", {}, note) : "")),
      );
    tile("Tokens", n.tokens.toLocaleString("en"));
    if (n.forwards !== null) {
      tile("Forward passes", n.forwards.toLocaleString("en"), "including those for the prompt");
      tile("Tokens per forward pass", n.perForward === null ? "–" : n.perForward.toFixed(2));
    }
    tile("Forced", percent(n.forced), "share of the tokens");
    if (n.thinkingCut) tile("Thinking", "cut", "it had no token left, so the mask ended it");
    if (n.logMass !== null) tile("Log mass", n.logMass.toPrecision(3), "logarithm of the probability that the format left, summed over all tokens");
    tile("Probability removed", n.removed.toPrecision(3), `summed over ${count(n.asked, "choice")}; the model's first choice was not allowed at ${n.overruled}`);
  }

  // -- the output ------------------------------------------------------------------------------------------------

  let current = -1;
  let spans = [];
  const selections = []; // what else shows which token is selected

  function tokens() {
    $("constraint").textContent = data.constraint;
    const all = document.createDocumentFragment();
    data.tokens.forEach((token, i) => {
      const classes = ["token", token.kind];
      if (token.overruled) classes.push("overruled");
      if (token.special) classes.push("special");
      const span = element(
        "span",
        { class: classes.join(" "), role: "option", id: `t${i}`, tabindex: i ? "-1" : "0", "aria-selected": "false", dir: "auto" },
        token.text.replaceAll("↵", "↵\n"),
      );
      span.setAttribute("aria-label", `${token.text}, ${token.overruled ? "overruled, " : ""}${token.kind}`);
      all.append(span);
      spans.push(span);
    });
    $("tokens").append(all);
    const index = (event) => spans.indexOf(event.target.closest?.(".token"));
    $("tokens").addEventListener("pointerover", (event) => show(index(event)));
    $("tokens").addEventListener("focusin", (event) => show(index(event)));
    $("tokens").addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const last = spans.length - 1;
      let to = null;
      if (event.key in steps) to = Math.min(last, Math.max(0, current + steps[event.key]));
      if (event.key === "Home") to = 0;
      if (event.key === "End") to = last;
      if (to === null || last < 0) return;
      event.preventDefault();
      spans[to].focus();
    });
  }

  function show(i) {
    if (i < 0 || i === current) return;
    if (current >= 0) {
      spans[current].setAttribute("aria-selected", "false");
      spans[current].tabIndex = -1;
    }
    current = i;
    spans[i].setAttribute("aria-selected", "true");
    spans[i].tabIndex = 0;
    $("details").replaceChildren(...details(data.tokens[i], i));
    for (const select of selections) select(i);
  }

  // -- one token -------------------------------------------------------------------------------------------------

  const KINDS = {
    chosen: "Chosen by the model.",
    drafted: "Drafted, and accepted by the model.",
    forced: "Forced: the constraint allows nothing else, so no forward pass was needed.",
  };

  function details(token, i) {
    const parts = [
      element("h3", {}, element("span", { class: "mono" }, quoted(token))),
      element("p", { class: "faint" }, `token ${i + 1} of ${data.tokens.length}, id ${token.id}${token.bytes ? `, bytes ${token.bytes}` : ""}`),
      element("p", {}, KINDS[token.kind]),
    ];
    if (token.left !== undefined) parts.push(element("p", {}, `The format left ${percent(token.left)} of the probability here.`));
    if (token.best === undefined) {
      if (token.kind !== "forced") parts.push(element("p", {}, "The model's other choices were not recorded."));
      return parts;
    }
    const free = token.allowed === data.vocabSize;
    parts.push(
      element(
        "p",
        {},
        free
          ? `All ${count(token.allowed, "token")} are allowed here.`
          : `${token.allowed.toLocaleString("en")} of ${count(data.vocabSize, "token")} ${token.allowed === 1 ? "is" : "are"} allowed here. The mask removed ${percent(token.removed)} of the probability.`,
      ),
    );
    if (token.limit !== undefined) {
      const instead = token.limit.overruled ? ` Without it, ${quoted(token.limit)} would have been the most probable token.` : "";
      parts.push(element("p", {}, `The ${token.limit.of} left ${percent(token.limit.left)} of what the format allows.${instead}`));
    }
    if (token.before !== undefined) {
      parts.push(element("p", {}, `This token: ${percent(token.before)} before the mask, ${percent(token.after)} after it.`));
    }
    const rows = token.best.slice();
    if (!rows.some((one) => one.id === token.id)) rows.push({ ...token, p: token.before, ok: true });
    const head = ["token", "probability", ""].map((name) => element("th", { scope: "col" }, name));
    parts.push(
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, ...head)),
        element("tbody", {}, ...rows.map((one) => row(one, token))),
      ),
    );
    const allowed = rows.filter((one) => one.ok);
    if (rows.some((one) => !one.ok) && allowed.length) {
      const names = allowed.map(quoted).join(", ");
      const more = token.allowed - allowed.length;
      parts.push(element("p", { class: "faint" }, `Allowed here: ${names}${more > 0 ? ` and ${more.toLocaleString("en")} more` : ""}.`));
    }
    return parts;
  }

  function row(one, token) {
    const taken = one.id === token.id;
    const width = `width: ${Math.round(60 * (one.p ?? 0))}px`;
    return element(
      "tr",
      { class: `${one.ok ? "allowed" : "forbidden"}${taken ? " taken" : ""}` },
      element("td", { class: "mono" }, seen(one.text)),
      element("td", { class: "p" }, percent(one.p), element("div", { class: "bar", style: width })),
      element("td", {}, one.ok ? (taken ? token.kind : "allowed") : "not allowed"),
    );
  }

  // -- plots -----------------------------------------------------------------------------------------------------

  const NARROWEST = 300; // pixels; less does not hold the labels

  function ticks(end, most) {
    // Round numbers from 0 to the end, at most so many steps.
    const rough = end / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let n = 0; n * step <= end * 1.0000001; n++) found.push(Number((n * step).toPrecision(12)));
    return found;
  }

  function frame(width, height, label) {
    return drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  }

  function removed() {
    const left = 62, top = 10, bottom = 54, height = 230;
    const n = data.tokens.length;
    const width = Math.min(Math.max(NARROWEST, $("removed").clientWidth), left + 10 + Math.max(420, 44 * n));
    const inner = width - left - 10, tall = height - top - bottom;
    const svg = frame(width, height, "Probability that the mask removed, in percent, for each output token");
    const step = n ? inner / n : inner;
    for (const tick of [0, 25, 50, 75, 100]) {
      const y = top + tall * (1 - tick / 100);
      svg.append(drawn("line", { class: "grid", x1: left, x2: left + inner, y1: y, y2: y }));
      svg.append(drawn("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, `${tick}`));
    }
    const now = drawn("rect", { class: "now", x: 0, y: top, width: 0, height: tall + 12 });
    svg.append(now);
    const base = top + tall;
    data.tokens.forEach((token, i) => {
      const x = left + i * step;
      const gap = Math.min(2, step * 0.15);
      if (token.removed > 0) {
        const high = tall * token.removed;
        svg.append(drawn("rect", { class: "removed", x: x + gap / 2, y: base - high, width: Math.max(0.5, step - gap), height: high }));
      }
      if (token.kind === "forced") {
        svg.append(drawn("line", { class: "tick-forced", x1: x + gap / 2, x2: x + step - gap / 2, y1: base + 6, y2: base + 6 }));
      }
    });
    svg.append(drawn("line", { class: "axis", x1: left, x2: left + inner, y1: base, y2: base }));
    for (const tick of ticks(n || 1, Math.min(n || 1, Math.floor(inner / 60)))) {
      if (!tick || tick !== Math.round(tick)) continue;
      svg.append(drawn("text", { x: left + (tick - 0.5) * step, y: base + 25, "text-anchor": "middle" }, `${tick}`));
    }
    svg.append(drawn("text", { class: "title", x: left + inner / 2, y: height - 6, "text-anchor": "middle" }, "Position in the output (tokens)"));
    const y = top + tall / 2;
    svg.append(drawn("text", { class: "title", x: 16, y, "text-anchor": "middle", transform: `rotate(-90 16 ${y})` }, "Probability removed (%)"));
    const hit = drawn("rect", { class: "hit", x: left, y: top, width: inner, height: tall + 14 });
    hit.addEventListener("pointermove", (event) => {
      const x = event.clientX - svg.getBoundingClientRect().left - left;
      show(Math.min(n - 1, Math.max(0, Math.floor(x / step))));
    });
    svg.append(hit);
    const select = (i) => {
      now.setAttribute("x", left + i * step);
      now.setAttribute("width", step);
    };
    $("removed").replaceChildren(svg);
    return select;
  }

  const LANES = [
    ["forward", "forward pass"],
    ["fill", "fill masks"],
    ["wait", "wait for masks"],
    ["compile", "wait for compiling"],
  ].filter(([what]) => what !== "compile" || data.spans.some((span) => span.what === "compile"));

  function timeline() {
    const left = 122, top = 8, lane = 32, bottom = 50;
    const zoom = Number($("zoom").value);
    const end = data.spans.reduce((last, span) => Math.max(last, span.start + span.ms), 0);
    const box = $("timeline");
    const worker = data.spans.some((span) => span.worker);
    const sum = (what) => data.spans.filter((span) => span.what === what).reduce((all, span) => all + span.ms, 0);
    const forwards = data.spans.some((span) => span.what === "forward");
    $("timeline-note").textContent =
      `Of the whole call, all rows together: ${forwards ? `forward passes ${sum("forward").toFixed(1)} ms, ` : ""}masks ${sum("fill").toFixed(1)} ms` +
      ` (filled ${worker ? "on a separate thread where hatched" : "on the thread of the loop"}), waiting for masks ${sum("wait").toFixed(1)} ms.` +
      (forwards ? "" : " The loop of transformers does not report its forward passes.");
    if (!(end > 0)) return () => {};
    const width = Math.max(NARROWEST, box.clientWidth) * zoom - (zoom > 1 ? 0 : 2);
    const inner = width - left - 14, height = top + LANES.length * lane + bottom;
    const svg = frame(width, height, "When forward passes ran, when masks were filled, and when the loop waited for them, in milliseconds");
    const pattern = drawn("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(drawn("rect", { class: "fill", width: 5, height: 5 }), drawn("rect", { class: "plate", width: 1.6, height: 5 }));
    svg.append(drawn("defs", {}, pattern));
    const base = top + LANES.length * lane;
    for (const tick of ticks(end, Math.max(2, Math.floor(inner / 90)))) {
      const x = left + (inner * tick) / end;
      svg.append(drawn("line", { class: "grid", x1: x, x2: x, y1: top, y2: base }));
      svg.append(drawn("text", { x, y: base + 18, "text-anchor": "middle" }, `${tick}`));
    }
    LANES.forEach(([what, name], row) => {
      svg.append(drawn("text", { x: left - 10, y: top + row * lane + lane / 2 + 4, "text-anchor": "end" }, name));
    });
    const bars = data.spans.map((span) => {
      const row = LANES.findIndex(([what]) => what === span.what);
      const bar = drawn("rect", {
        class: span.what,
        x: left + (inner * span.start) / end,
        y: top + row * lane + 5,
        width: Math.max(0.6, (inner * span.ms) / end),
        height: lane - 10,
      });
      if (span.worker) bar.setAttribute("style", "fill: url(#hatch)");
      bar.append(drawn("title", {}, `${LANES[row][1]}: ${span.ms.toFixed(3)} ms, from ${span.start.toFixed(3)} ms${span.worker ? ", on the separate thread" : ""}`));
      return bar;
    });
    svg.append(...bars);
    svg.append(drawn("line", { class: "axis", x1: left, x2: left + inner, y1: base, y2: base }));
    svg.append(drawn("text", { class: "title", x: left + inner / 2, y: height - 8, "text-anchor": "middle" }, "Time (ms)"));
    box.replaceChildren(svg);
    let marked = null;
    return (i) => {
      marked?.classList.remove("selected");
      marked = bars[data.tokens[i].span] ?? null;
      marked?.classList.add("selected");
      if (marked && zoom > 1) box.scrollLeft = Number(marked.getAttribute("x")) - box.clientWidth / 2;
    };
  }

  // -- all of it -------------------------------------------------------------------------------------------------

  numbers();
  tokens();
  const draw = { removed: removed(), timeline: timeline() };
  selections.push((i) => draw.removed(i), (i) => draw.timeline(i));
  const again = (...names) => {
    for (const name of names) draw[name] = name === "removed" ? removed() : timeline();
    if (current >= 0) for (const name of names) draw[name](current);
  };
  $("zoom").addEventListener("change", () => again("timeline"));
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    again("removed", "timeline");
  });
  if (spans.length) show(Math.max(0, data.tokens.findIndex((token) => token.overruled)));
  document.documentElement.dataset.drawnMs = performance.now().toFixed(1);
})();
