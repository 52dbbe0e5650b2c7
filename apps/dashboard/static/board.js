// Draws the page's charts, and keeps what is live on it up to date.
const EVERY = 2000;
const page = document.getElementById("board").dataset.page;
const dark = matchMedia("(prefers-color-scheme: dark)");
const at = (id) => document.getElementById(id);
let revision = "";

function looks() {
  const ink = dark.matches ? "#c9c8c4" : "#4a4e55", grid = dark.matches ? "#2f3237" : "#ebe8e2";
  return {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: ink, titleColor: ink, gridColor: grid, domainColor: grid, tickColor: grid, titleFontWeight: 500 },
    legend: { labelColor: ink, titleColor: ink, orient: "bottom" },
  };
}

// `ast`: expressions are interpreted, for the page may evaluate no text as a program.
const embed = (where, spec) => window.vegaEmbed(where, spec, {
  actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true }, config: looks(),
}).catch(console.error);

async function draw() {
  if (!page) return;
  const answer = await fetch(`/api/charts/${page}`);
  if (!answer.ok) return;
  for (const [name, spec] of Object.entries(await answer.json())) {
    if (at(`chart-${name}`)) await embed(`#chart-${name}`, spec);
  }
}

const duration = (seconds) => seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

function show(now) {
  if (at("now")) at("now").hidden = !now;
  if (at("idle")) at("idle").hidden = Boolean(now);
  if (now && at("now")) {
    const where = now.where === "start" ? "start" : now.where === "" ? "" : `iteration ${now.where}`;
    at("now-what").textContent = [where, now.stage || "between two stages"].filter(Boolean).join(" · ");
    const more = [`for ${duration(Math.max(0, now.heard - now.since))}`];
    if (now.total) more.push(`${Math.round(now.done)} of ${Math.round(now.total)}`);
    if (now.left_s !== null) more.push(`about ${duration(now.left_s)} left`);
    if (now.message) more.push(now.message);
    more.push(`process ${now.process} of ${now.host}`);
    at("now-more").textContent = more.join(" · ");
    at("now-bar").hidden = !now.total;
    if (now.total) at("now-bar").value = Math.min(1, now.done / now.total);
  }
  if (at("curve")) curve(now ? now.curve : []);
  if (at("sandboxes")) sandboxes(now ? now.sandboxes : [], now ? now.heard : 0);
}

function curve(points) {
  at("curve").hidden = points.length < 2;
  at("no-curve").hidden = points.length >= 2;
  if (points.length < 2) return;
  embed("#curve", {
    data: { values: points.map(([step, loss]) => ({ step, loss })) }, width: "container", height: 260,
    mark: { type: "line", color: "#3b7dd8", interpolate: "monotone" },
    encoding: { x: { field: "step", type: "quantitative" }, y: { field: "loss", type: "quantitative", scale: { zero: false } } },
  });
}

function sandboxes(leased, heard) {
  at("sandboxes").hidden = leased.length === 0;
  at("no-sandboxes").hidden = leased.length > 0;
  at("sandboxes").tBodies[0].replaceChildren(...leased.map((one) => {
    const row = document.createElement("tr");
    for (const [text, number] of [[one.environment], [one.task_id], [one.seed, true], [(heard - one.since).toFixed(1), true]]) {
      const cell = row.insertCell();
      cell.textContent = text;
      if (number) cell.className = "n";
    }
    return row;
  }));
}

async function look() {
  try {
    const answer = await (await fetch("/api/now")).json();
    show(answer.now);
    if (revision && answer.revision !== revision && page) location.reload();
    revision = answer.revision;
  } catch { /* the server is being started anew; the next look tells */ }
}

dark.addEventListener("change", draw);
await draw();
await look();
setInterval(() => { if (!document.hidden) look(); }, EVERY);
