// Draws the states that /live sends. Text from records goes into the page by
// textContent alone; nothing of it is ever read as markup.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// put changes what differs, so that selections and focus stay.
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

function el(tag, cls, text) {
  const n = document.createElement(tag);
  if (cls) n.className = cls;
  if (text !== undefined) n.textContent = text;
  return n;
}

function svg(tag, attributes, text) {
  const n = document.createElementNS(SVG, tag);
  for (const k in attributes) n.setAttribute(k, attributes[k]);
  if (text !== undefined) n.textContent = text;
  return n;
}

// keyed makes the children of a list those of the items, in order, keeping the
// nodes of items that stay.
function keyed(list, items, key, make, fill) {
  const old = new Map();
  for (const c of list.children) old.set(c.rocelinkKey, c);
  let at = list.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let node = old.get(k);
    if (node) {
      old.delete(k);
    } else {
      node = make(item);
      node.rocelinkKey = k;
    }
    fill(node, item);
    if (node === at) at = at.nextElementSibling;
    else list.insertBefore(node, at);
  }
  for (const node of old.values()) node.remove();
}

// Counters are decimal strings, for they have 64 bits.
function count(text) {
  return String(text).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

function scaled(v, unit) {
  const steps = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [by, name] of steps) {
    if (v >= by) return (v / by).toPrecision(3) + " " + name + unit;
  }
  return (v === 0 || v >= 100 ? v.toFixed(0) : v.toPrecision(2)) + " " + unit;
}

function span(ms) {
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return s.toFixed(0) + " s";
  if (s < 7200) return (s / 60).toFixed(0) + " min";
  if (s < 172800) return (s / 3600).toFixed(0) + " h";
  return (s / 86400).toFixed(0) + " d";
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

const severities = { ok: "in order", note: "note", warning: "warning", critical: "critical" };
const titles = {
  "source": "source", "posted": "posted", "sent": "sent", "acknowledged": "acknowledged", "resent": "sent again",
  "mac-out": "MAC out", "nic-in": "NIC in", "delivered": "delivered", "completions": "completions", "accepted": "accepted", "verified": "verified",
};

let state = null; // the newest
let source = null;
let lastHeard = 0;
let drawn = 0; // states drawn, for tests

function selected() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // not one of ours
  }
}

function connect() {
  if (source) source.close();
  const q = new URLSearchParams();
  if (selected()) q.set("path", selected());
  if ($("filter").value) q.set("filter", $("filter").value);
  source = new EventSource("live?" + q);
  source.addEventListener("state", (e) => {
    state = JSON.parse(e.data);
    lastHeard = performance.now();
    requestAnimationFrame(draw);
  });
  source.onerror = () => showConnection();
}

function showConnection() {
  const silent = performance.now() - lastHeard;
  let text = "live", bad = false;
  if (!lastHeard) {
    text = "connecting…";
  } else if (silent > 4000) {
    text = "rocelinkd does not answer: what is shown is " + span(silent) + " old";
    bad = true;
  } else if (state && !state.overview.connected) {
    text = "no NATS server: nothing new is heard";
    bad = true;
  } else if (state) {
    text = "live, " + clock(state.overview.now);
  }
  put($("connection"), text);
  setClass($("connection"), bad ? "bad" : "quiet");
}

function drawLists(o) {
  const wrong = o.wrong;
  put($("summary"), wrong === 0 ? "all in order" : wrong === 1 ? "1 path is not in order" : wrong + " paths are not in order");
  keyed($("boards"), o.boards, (b) => b.name, () => {
    const li = el("li"), row = el("div", "row");
    row.append(el("span", "dot"), el("span", "name"), el("span", "figure"), el("span", "text"));
    li.append(row);
    return li;
  }, (li, b) => {
    const [dot, name, figure, text] = li.firstChild.children;
    setClass(dot, "dot " + (b.severity || ""));
    put(name, b.name);
    put(figure, b.fresh ? (b.link_up ? "link up" : "link DOWN") : "silent");
    put(text, b.fresh ? [b.model, "fabric " + (b.fabric || "unknown"), b.streams + (b.streams === 1 ? " stream" : " streams"), "up " + span(b.uptime_ms)].filter(Boolean).join(" · ")
      : "not heard for " + span(b.silent_ms));
  });
  keyed($("paths"), o.paths, (p) => p.id, (p) => {
    const li = el("li"), row = el("button", "row");
    row.type = "button";
    row.append(el("span", "dot"), el("span", "name"), el("span", "figure"), el("span", "text"));
    row.addEventListener("click", () => { location.hash = encodeURIComponent(p.id); });
    li.append(row);
    return li;
  }, (li, p) => {
    const row = li.firstChild;
    const [dot, name, figure, text] = row.children;
    setClass(dot, "dot " + p.severity);
    put(name, p.stream ? p.stream + "  " + [p.board || "?", p.host || "?"].join(" → ") : p.board ? "board " + p.board : "host " + p.host);
    put(figure, p.bps === null ? "" : scaled(p.bps, "b/s"));
    put(text, (severities[p.severity] || p.severity) + ": " + p.text);
    row.setAttribute("aria-current", String(state.detail !== null && state.detail.path.id === p.id));
  });
  for (const [id, n, what] of [["more-boards", o.more_boards, "boards"], ["more-paths", o.more_paths, "streams"]]) {
    $(id).hidden = n === 0;
    put($(id), "and " + n + " more " + what + ": filter by name");
  }
  $("empty").hidden = o.boards.length + o.paths.length > 0 || $("filter").value !== "";
}

function linkText(l) {
  const parts = ["link " + (l.up ? "up" : "DOWN") + (l.for_ms !== undefined ? " for " + span(l.for_ms) : "")];
  if (!l.up && l.state) parts.push("at step " + l.state);
  if (l.status) parts.push("receive status " + l.status);
  if (l.losses !== "0") parts.push("lost " + (l.losses === "1" ? "once" : count(l.losses) + " times"));
  if (l.fec && l.fec_corrected === undefined) parts.push("FEC " + l.fec);
  if (l.fec_corrected !== undefined) parts.push("FEC " + (l.fec ? l.fec + ", " : "") + "corrected " + count(l.fec_corrected) + " codewords, " + count(l.fec_uncorrected) + " not");
  if (l.problem) parts.push(l.problem);
  return parts.join(" · ");
}

// dbm is a power in mW as people read it. No light has none.
function dbm(mw) {
  return mw > 0 ? (10 * Math.log10(mw)).toFixed(1) + " dBm" : "none";
}

// drawOptics shows each cage of the link, lane by lane.
function drawOptics(optics) {
  $("optics").hidden = optics.length === 0;
  keyed($("optics"), optics, (o) => o.cage, () => {
    const li = el("li"), lanes = el("ol", "lanes");
    li.append(el("p"), el("p", "alarms"), lanes);
    return li;
  }, (li, o) => {
    const [head, alarms, lanes] = li.children;
    put(head, [o.cage, o.phase, o.what, o.temperature_c === undefined ? "" : o.temperature_c.toFixed(1) + " °C", o.problem].filter(Boolean).join(" · "));
    put(alarms, (o.alarms || []).join(" · "));
    keyed(lanes, o.lanes || [], (l) => l.lane, () => {
      const lane = el("li");
      lane.append(el("b"), el("span", "rx"), el("span", "quiet"));
      return lane;
    }, (lane, l) => {
      const [name, rx, tx] = lane.children;
      const dark = l.no_light || l.rx_power_mw === 0;
      setClass(lane, dark || l.tx_fault ? "lane bad" : "lane");
      put(name, "lane " + l.lane);
      put(rx, dark ? "DARK" : l.rx_power_mw === undefined ? "not monitored" : "in " + dbm(l.rx_power_mw));
      put(tx, [l.tx_fault ? "laser FAULT" : l.tx_disabled ? "transmitter off" : l.tx_power_mw === undefined ? "" : "out " + dbm(l.tx_power_mw),
        l.tx_bias_ma === undefined ? "" : l.tx_bias_ma.toFixed(1) + " mA"].filter(Boolean).join(", "));
    });
  });
}

// differs says whether the link is another than it was, its age aside.
function differs(a, b) {
  return ["up", "state", "status", "problem", "losses", "fec_corrected", "fec_uncorrected"].some((k) => a[k] !== b[k]);
}

function drawDetail(d) {
  $("detail").hidden = false;
  if (d === null) {
    put($("title"), "This stream is not there any more.");
    put($("facts"), "");
    for (const id of ["diagnosis", "stages", "link", "link-then", "optics", "plots", "events", "no-events", "events-title"]) $(id).hidden = true;
    return;
  }
  for (const id of ["diagnosis", "stages", "link", "plots", "events", "events-title"]) $(id).hidden = false;
  const p = d.path;
  put($("title"), p.stream || (p.board ? "board " + p.board : "host " + p.host));
  put($("facts"), p.stream ? [(p.board || "?") + " → " + (p.host || "?"), p.verb, p.state, p.session ? "session " + p.session : ""].filter(Boolean).join(" · ") : "");
  const g = p.diagnosis;
  setClass($("diagnosis"), g.severity);
  put($("severity"), severities[g.severity] || g.severity);
  put($("rule"), g.rule);
  put($("since"), "since " + clock(d.since));
  put($("sentence"), g.text);
  put($("remedy"), g.remedy || "");
  keyed($("stages"), p.stages || [], (s) => s.name, (s) => {
    const li = el("li");
    li.append(el("div", "what"), el("div", "rate"), el("div", "quiet sum"), el("div", "quiet note"), el("div", "flag", s.name === "resent" ? "too many" : "falls behind here"));
    return li;
  }, (li, s) => {
    setClass(li, "stage " + s.state + (s.state === "broken" ? " " + g.severity : ""));
    const [what, rate, sum, note] = li.children;
    put(what, titles[s.name] || s.name);
    const known = s.state !== "absent" && s.state !== "unknown";
    put(rate, s.state === "absent" ? "–" : s.state === "unknown" ? "not heard" : s.rate === undefined ? "…" : scaled(s.rate, "/s"));
    put(sum, known ? count(s.count) + " " + s.unit + ", " + span(s.age_ms) + " old" : "");
    put(note, [s.port ? "whole port" : "", s.note || ""].filter(Boolean).join(", "));
    if (s.state === "broken") li.setAttribute("aria-current", "step");
    else li.removeAttribute("aria-current");
  });
  $("link").hidden = !p.link;
  if (p.link) put($("link"), linkText(p.link));
  const bad = g.severity === "warning" || g.severity === "critical";
  const then = bad && d.link_then && p.link && differs(d.link_then, p.link);
  $("link-then").hidden = !then;
  if (then) put($("link-then"), "when it began: " + linkText(d.link_then));
  drawOptics((p.link && p.link.optics) || []);
  $("plots").hidden = !p.stream;
  if (p.stream) {
    put($("goodput-now"), p.bits_per_second === undefined ? "" : scaled(p.bits_per_second, "b/s"));
    plotGoodput(d.history);
    plotLoss(d.history);
  }
  keyed($("events"), d.events, (e) => e.n, (e) => {
    const li = el("li"), t = el("time", "", clock(e.at));
    t.dateTime = new Date(e.at).toISOString();
    li.append(t, el("code", "", e.kind), el("p", "", (e.board ? "board " : "host ") + e.from + ": " + e.text));
    return li;
  }, () => {});
  $("no-events").hidden = d.events.length > 0;
}

// The plots. All of them share the axis of time: the last five minutes.
const minutes = 5, left = 62, right = 8, top = 8, bottom = 20;

function frame(node) {
  const w = Math.max(node.clientWidth, 200), h = Math.max(node.clientHeight, 100);
  node.setAttribute("viewBox", "0 0 " + w + " " + h);
  return { node, w, h, x: (back) => w - right - (w - left - right) * back / (minutes * 60000), y: (part) => h - bottom - (h - top - bottom) * part };
}

// nice is the end of an axis: 1, 2 or 5 times a power of ten, no less than v.
function nice(v) {
  if (v <= 0) return 1;
  const p = Math.pow(10, Math.floor(Math.log10(v)));
  for (const k of [1, 2, 5, 10]) if (v <= k * p * 1.0001) return k * p;
  return 10 * p;
}

function axes(f, most, unit) {
  f.node.replaceChildren();
  for (const part of [0, 0.5, 1]) {
    f.node.append(svg("line", { class: "grid", x1: left, x2: f.w - right, y1: f.y(part), y2: f.y(part) }));
    f.node.append(svg("text", { x: left - 6, y: f.y(part) + 4, "text-anchor": "end" }, most * part === 0 ? "0" : scaled(most * part, unit)));
  }
  for (let m = 0; m <= minutes; m += f.w < 480 && m === minutes - 2 ? 2 : 1) {
    f.node.append(svg("text", { x: f.x(m * 60000), y: f.h - 5, "text-anchor": m === 0 ? "end" : m === minutes ? "start" : "middle" }, m === 0 ? "now" : "−" + m + " min"));
  }
}

function plotGoodput(h) {
  const f = frame($("goodput"));
  const most = nice(Math.max(0, ...h.bps.map((v) => v || 0)));
  axes(f, most, "b/s");
  // A gap in what is known is a gap in the curve.
  let run = [];
  const flush = () => {
    if (run.length > 0) {
      const line = run.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join("");
      f.node.append(svg("path", { class: "area", d: line + "L" + run[run.length - 1][0].toFixed(1) + " " + f.y(0) + "L" + run[0][0].toFixed(1) + " " + f.y(0) + "Z" }));
      f.node.append(svg("path", { class: "curve", d: line }));
    }
    run = [];
  };
  h.bps.forEach((v, i) => {
    if (v === null) flush();
    else run.push([f.x((h.bps.length - 1 - i) * h.step), f.y(v / most)]);
  });
  flush();
  cursor(f, h, "goodput-read", (i) => h.bps[i] === null ? "not known" : scaled(h.bps[i], "b/s"));
}

function plotLoss(h) {
  const f = frame($("loss"));
  const most = nice(Math.max(1, ...h.lost, ...h.resent));
  axes(f, most, "/s");
  const wide = Math.max(1, (f.x(0) - f.x(h.step)) * 0.8);
  for (const kind of ["resent", "lost"]) {
    h[kind].forEach((v, i) => {
      if (v === 0) return;
      const tall = Math.max(2, f.y(0) - f.y(v / most));
      f.node.append(svg("rect", { class: kind, x: (f.x((h[kind].length - 1 - i) * h.step) - wide / 2).toFixed(1), y: (f.y(0) - tall).toFixed(1), width: wide.toFixed(1), height: tall.toFixed(1) }));
    });
  }
  cursor(f, h, "loss-read", (i) => count(h.lost[i]) + " lost, " + count(h.resent[i]) + " sent again");
}

// cursor reads the plot where the pointer is.
const pointers = new Map();
for (const id of ["goodput", "loss"]) {
  $(id).addEventListener("pointermove", (e) => { pointers.set(id, e.offsetX); redraw(); });
  $(id).addEventListener("pointerleave", () => { pointers.delete(id); redraw(); });
}

function cursor(f, h, read, text) {
  const x = pointers.get(f.node.id);
  const n = h.bps.length;
  if (x === undefined || n === 0) {
    put($(read), "");
    return;
  }
  const back = (f.w - right - x) / (f.w - left - right) * minutes * 60000;
  const i = Math.min(n - 1, Math.max(0, n - 1 - Math.round(back / h.step)));
  const at = f.x((n - 1 - i) * h.step);
  f.node.append(svg("line", { class: "cursor", x1: at, x2: at, y1: f.y(0), y2: f.y(1) }));
  put($(read), clock(h.end - (n - 1 - i) * h.step) + ": " + text(i));
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function draw() {
  if (!state) return;
  drawLists(state.overview);
  if (state.detail === null && !selected()) $("detail").hidden = true;
  else drawDetail(state.detail);
  showConnection();
  drawn++;
  document.documentElement.dataset.drawn = String(drawn);
}

let typing = 0;
$("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(connect, 250);
});
addEventListener("hashchange", connect);
addEventListener("resize", redraw);
setInterval(showConnection, 1000);
connect();
