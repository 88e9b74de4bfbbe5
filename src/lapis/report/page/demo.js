// The demo's report: figures of one run, set out to be read.
"use strict";

const data = JSON.parse(byId("data").textContent);

const whole = (n) => Math.round(n).toLocaleString("en");
const line = Dom.row;

function headline() {
  const { accuracy, speed, equality } = data;
  const codes = equality.reduce((sum, row) => sum + row.codes, 0);
  const differ = equality.reduce((sum, row) => sum + row.codes_differing, 0);
  const tiles = [
    [`${accuracy.top1.toFixed(1)} %`, `right, of ${accuracy.images} CIFAR-10 images`],
    [differ ? whole(differ) : "0", `of ${whole(codes)} codes differ between engine, spikes and integers`],
    Charts.energyTile(data),
    [
      speed.ratio ? `${speed.ratio.toFixed(1)} ×` : `${speed.ours_ms.toFixed(1)} ms`,
      speed.ratio ? "the speed of PyTorch FP32, on one core" : "per image, on one core",
    ],
  ];
  byId("headline").replaceChildren(
    ...tiles.map(([value, name]) =>
      element("div", { className: "card" }, element("dt", {}, name), element("dd", {}, value)),
    ),
  );
}

function photos() {
  byId("photos-section").hidden = !data.photos.length;
  const percent = (score) => `${Math.round(100 * score)}\u00a0%`;
  byId("photos").replaceChildren(
    ...data.photos.map((photo, at) =>
      element(
        "figure",
        { className: "answer" },
        element("img", { src: data.photo_images[at], alt: photo.shows }),
        element(
          "figcaption",
          {},
          element("b", {}, `${photo.answers[0].name} ${percent(photo.answers[0].score)}`),
          ...photo.answers.slice(1).map((each) => element("small", {}, `${each.name} ${percent(each.score)}`)),
          element("small", { className: "credit" }, `It is ${photo.shows}. Photo: ${photo.credit}`),
        ),
      ),
    ),
  );
  byId("photos-says").textContent =
    `Named by ${data.photo_model}: its three likeliest classes with their scores, and what the photograph shows.`;
}

function answers() {
  byId("answers").replaceChildren(
    ...data.answers.map((answer) =>
      element(
        "figure",
        { className: answer.right ? "answer" : "answer wrong" },
        element("img", { src: answer.image, alt: answer.label }),
        element(
          "figcaption",
          {},
          `${answer.right ? "✓" : "✗"} ${answer.prediction} ${Math.round(100 * answer.score)}\u00a0%`,
          ...(answer.right ? [] : [element("small", {}, `is ${answer.label}`)]),
        ),
      ),
    ),
  );
  byId("answers-says").textContent =
    `The first images of the packaged CIFAR-10 sample, classified by ${data.engine}. ` +
    `Over all ${data.accuracy.images}: ` +
    `top-1 ${data.accuracy.top1.toFixed(2)} %, top-5 ${data.accuracy.top5.toFixed(2)} %.`;
  byId("explain").href = data.explain;
  byId("live").href = data.live;
  byId("live-says").hidden = !data.live;
}

function equality() {
  byId("equal-says").textContent =
    `The integer model is the definition. The engine and the spiking network, simulated step by step, are compared with it code by code at every measuring point. ` +
    `One image takes ${whole(data.spikes)} spikes, ${whole(data.operations)} synaptic operations and ${whole(data.latency)} steps.`;
  byId("equality").replaceChildren(
    element(
      "thead",
      {},
      line("th", [
        "executor",
        "codes that differ",
        "codes compared",
        "images",
        "images whose logits differ",
        "tolerance",
        "seconds per image",
      ]),
    ),
    element(
      "tbody",
      {},
      ...data.equality.map((row) =>
        line("td", [
          `${row.passed ? "✓" : "✗"} ${row.name}`,
          whole(row.codes_differing),
          whole(row.codes),
          String(row.images),
          String(row.images_with_other_logits),
          row.tolerance === "equal" ? "bit for bit" : "but for ties",
          row.seconds_per_image.toPrecision(2),
        ]),
      ),
    ),
  );
}

function energy() {
  Charts.energyReport(data, "images");
}

function speed() {
  const { ours_ms, rival_ms, rival } = data.speed;
  byId("speed-says").textContent = "One image at a time on one thread, median of runs that took turns on this machine.";
  const bars = [[`Lapis, ${data.engine}`, ours_ms, "ours-bar"]];
  if (rival_ms !== null) bars.push([rival, rival_ms, "rival-bar"]);
  const longest = Math.max(...bars.map((bar) => bar[1]));
  byId("speed").replaceChildren(
    ...bars.map(([name, ms, kind]) =>
      element(
        "div",
        { className: "pace" },
        element("span", {}, name),
        element(
          "span",
          { className: "pace-bar" },
          element("span", { className: kind, style: `width:${(100 * ms) / longest}%` }),
        ),
        element("b", {}, `${Charts.number(ms)} ms`),
      ),
    ),
    ...(rival_ms === null ? [element("p", { className: "caption" }, `No comparison: ${rival}.`)] : []),
  );
}

byId("source").textContent = `${data.model} · ${(data.bytes / 1e6).toFixed(2)} MB · T = ${data.window}`;
byId("foot").textContent =
  `Lapis ${data.version}, ${data.machine}. Every figure on this page was measured in the run that wrote it (${data.seconds.toFixed(0)} seconds).`;
for (const draw of [headline, photos, answers, equality, energy, speed]) draw();
Dom.themeButton(energy);
Dom.onWidth(energy);
