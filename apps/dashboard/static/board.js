// Draw the page's charts, and refresh its live parts.
import { ask, make, person, toast } from "/static/desk.js";

const EVERY = 2000;
const page = document.getElementById("board").dataset.page;
const dark = matchMedia("(prefers-color-scheme: dark)");
const at = (id) => document.getElementById(id);
let revision = "";

function theme() {
  const ink = dark.matches ? "#c9c8c4" : "#4a4e55", grid = dark.matches ? "#2f3237" : "#ebe8e2";
  return {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelColor: ink, titleColor: ink, gridColor: grid, domainColor: grid, tickColor: grid, titleFontWeight: 500 },
    legend: { labelColor: ink, titleColor: ink, orient: "bottom" },
  };
}

// `ast`: expressions are interpreted, because the page may not evaluate text as code.
const embed = (where, spec) => window.vegaEmbed(where, spec, {
  actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true }, config: theme(),
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

const title = (run) => {
  const where = run.where === "start" ? "start" : run.where === "" ? (run.flow === run.stage ? "" : run.flow) : `iteration ${run.where}`;
  return [where, run.stage || "between two stages"].filter(Boolean).join(" · ");
};

function show(runs) {
  if (at("runs")) {
    at("idle").hidden = runs.length > 0;
    at("runs").replaceChildren(...runs.map(card));
  }
  if (at("curves")) curves(runs.filter((run) => run.curve.length >= 2));
  if (at("sandboxes")) sandboxes(runs.flatMap((run) => run.sandboxes.map((one) => [one, run.heard])));
}

function card(run) {
  const made = at("now").content.cloneNode(true), bar = made.querySelector("progress");
  made.querySelector(".what").textContent = title(run);
  const more = [`for ${duration(Math.max(0, run.heard - run.since))}`];
  if (run.total) more.push(`${Math.round(run.done)} of ${Math.round(run.total)}`);
  if (run.left_s !== null) more.push(`about ${duration(run.left_s)} left`);
  if (run.message) more.push(run.message);
  more.push(`process ${run.process} of ${run.host}`);
  made.querySelector(".more").textContent = more.join(" · ");
  bar.hidden = !run.total;
  if (run.total) bar.value = Math.min(1, run.done / run.total);
  return made;
}

/** Show the button that stops the runs, or the pause and the button that ends it. */
function control(running, paused) {
  if (!at("control")) return;
  at("control").hidden = !running && !paused;
  at("stop").hidden = !running || Boolean(paused);
  at("paused").hidden = at("resume").hidden = !paused;
  at("paused").textContent = paused ? `${paused} ` + (running ? "The run ends after its current stage." : "Then start the same command again.") : "";
}

async function send(path) {
  const who = person();
  if (!who) return;
  const [status, answer] = await ask(path, { person: who });
  if (status === 201) await poll();
  else toast(answer.error);
}

/** Show the last lines of a retraining that this page started, until it ends. */
async function follow() {
  const line = at("retraining").querySelector("span");
  const [status, now] = await ask("/api/retrain");
  if (status !== 200) return;
  const ended = now.code === null ? "" : now.code === 0 ? "Finished: " : `Ended with code ${now.code}: `;
  line.replaceChildren(`${ended}${now.lines.join(" · ") || "Starting …"} (${now.log})`);
  if (now.policy) line.append(" ", make("a", { href: `/policies/${encodeURIComponent(now.policy)}` }, `Open ${now.policy}`));
  for (const one of at("retraining").querySelectorAll("button")) one.disabled = now.running;
  if (now.running) setTimeout(follow, EVERY);
}

async function retrain(like) {
  const who = person();
  if (!who) return;
  const [status, answer] = await ask("/api/retrain", { person: who, like: like || null });
  if (status === 201) await follow();
  else toast(answer.error);
}

function curves(runs) {
  at("no-curve").hidden = runs.length > 0;
  const there = new Map([...at("curves").children].map((one) => [one.dataset.run, one]));
  at("curves").replaceChildren(...runs.map((run) => there.get(run.run_id) ?? place(run.run_id)));
  for (const [number, run] of runs.entries()) {
    const heading = runs.length > 1 ? `${title(run)} · process ${run.process} of ${run.host}` : undefined;
    embed(at("curves").children[number], { ...run.chart, title: heading });
  }
}

function place(run) {
  const made = document.createElement("div");
  made.className = "chart";
  made.dataset.run = run;
  return made;
}

function sandboxes(leased) {
  at("sandboxes").hidden = leased.length === 0;
  at("no-sandboxes").hidden = leased.length > 0;
  at("sandboxes").tBodies[0].replaceChildren(...leased.map(([one, heard]) => {
    const row = document.createElement("tr");
    const age = (heard - one.since).toFixed(1), memory = [one.host_mb, one.own_mb].map((mb) => [mb?.toFixed(0) ?? "", true]);
    const cells = [[one.environment], [one.task_id], [one.seed, true], [one.trajectory_id.slice(0, 8)], [age, true], [one.silent_s.toFixed(1), true], ...memory];
    for (const [text, number] of cells) {
      const cell = row.insertCell();
      cell.textContent = text;
      if (number) cell.className = "n";
    }
    return row;
  }));
}

async function poll() {
  try {
    const answer = await (await fetch("/api/now")).json();
    show(answer.runs);
    control(answer.runs.length > 0, answer.paused);
    if (revision && answer.revision !== revision && page && !page.startsWith("policies/")) location.reload();
    revision = answer.revision;
  } catch { /* the server is restarting; poll again */ }
}

at("stop")?.addEventListener("click", () => send("/api/pause"));
at("resume")?.addEventListener("click", () => send("/api/resume"));
for (const one of document.querySelectorAll("#retraining button")) one.addEventListener("click", () => retrain(one.dataset.like));
dark.addEventListener("change", draw);
await draw();
await poll();
setInterval(() => { if (!document.hidden) poll(); }, EVERY);
