// The report of a distillation: how near the packed network is to the dense one, and where it is not.
"use strict";

const data = JSON.parse(byId("data").textContent);

const line = Dom.row;
const percent = (share) => `${share.toFixed(1)}\u00a0%`;
const score = (share) => `${Math.round(100 * share)}\u00a0%`;
const first = data.stages[0];
const last = data.stages[data.stages.length - 1];

function headline() {
  const { agreement, labelled, verified } = data;
  const tiles = [
    [
      percent(agreement.top1),
      `of ${agreement.images} images held aside get the dense network's answer; ${percent(first.agreement)} before training`,
    ],
    [last.kl.toFixed(3), `nats of KL divergence from its answers; ${Charts.number(first.kl)} before training`],
    labelled
      ? [
          percent(labelled.deployed),
          `top-1 accuracy on ${labelled.images} labelled images; dense ${percent(labelled.dense)}`,
        ]
      : null,
    [`${(data.bytes / 1e6).toFixed(2)} MB`, `packed, ${data.weight_bits}-bit weights; ${verified.text}`],
  ];
  byId("headline").replaceChildren(
    ...tiles
      .filter(Boolean)
      .map(([value, name]) => element("div", { className: "card" }, element("dt", {}, name), element("dd", {}, value))),
  );
}

function stages() {
  byId("stages-says").textContent =
    `Measured on ${last.images} images that were never trained on. Agreement is the share that gets the dense network's answer; ` +
    "KL is the divergence of the answers in nats, 0 for equal ones; the block error is the mean of the bars below. " +
    `Training took ${data.stages.reduce((sum, row) => sum + row.minutes, 0).toFixed(1)} minutes.`;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  byId("stages").replaceChildren(
    element("thead", {}, line("th", ["stage", "agreement", "KL (nats)", "block error", "steps", "minutes"])),
    element(
      "tbody",
      {},
      ...data.stages.map((row) =>
        line("td", [
          row.stage,
          percent(row.agreement),
          Charts.number(row.kl),
          Charts.number(mean(row.block_errors)),
          row.steps ? String(row.steps) : "–",
          row.steps ? row.minutes.toFixed(1) : "–",
        ]),
      ),
    ),
  );
}

function blocks() {
  const worst = last.block_errors.indexOf(Math.max(...last.block_errors));
  byId("blocks-says").textContent =
    "The error of each block alone, on the dense network's own tokens: the mean squared difference of what both blocks give, as a " +
    `share of what the block adds. Block ${worst} lost most.`;
  const most = Math.max(...first.block_errors, ...last.block_errors);
  const bar = (value, className) =>
    element("span", { className: "pace-bar" }, element("span", { className, style: `width:${(100 * value) / most}%` }));
  byId("blocks").replaceChildren(
    ...last.block_errors.map((after, n) => {
      const before = first.block_errors[n];
      return element(
        "div",
        { className: "pace block-pace" },
        element("span", {}, `block ${n}`),
        element("span", { className: "two-bars" }, bar(before, "rival-bar"), bar(after, "ours-bar")),
        element("b", {}, `${before.toFixed(3)} → ${after.toFixed(3)}`),
      );
    }),
  );
}

function examples() {
  const { images, same } = data.agreement;
  const differ = images - same;
  byId("examples-says").textContent = differ
    ? `${differ} of ${images} images held aside get another answer. The packed network was surest of these; the scores are each network's own.`
    : `Both networks give the same answer to all ${images} images held aside.`;
  byId("examples").replaceChildren(
    ...data.examples.map((one, at) =>
      element(
        "figure",
        { className: "answer", title: one.file },
        element("img", { src: data.pictures[at], alt: `packed: ${one.answer}, dense: ${one.dense_answer}` }),
        element(
          "figcaption",
          {},
          element("small", {}, "packed"),
          `${one.answer} ${score(one.score)}`,
          element("small", {}, `it gives ${one.dense_answer} ${score(one.score_of_dense_answer)}`),
          element("small", { className: "apart" }, "dense"),
          `${one.dense_answer} ${score(one.dense_score)}`,
          element("small", {}, `it gives ${one.answer} ${score(one.dense_score_of_answer)}`),
          element("small", { className: "file" }, one.file.split("/").pop()),
        ),
      ),
    ),
  );
  byId("examples-next").textContent = differ ? `See why: lapis explain ${data.file} ${data.examples[0].file}` : "";
}

byId("source").textContent =
  `${data.source} · ${data.image_size} px · ${data.classes} classes · T = ${data.window} · ${data.train_images} images without labels`;
const left = data.unreadable.length;
byId("foot").textContent =
  `Lapis ${data.version}. The agreement at the top is that of the packed file ${data.file}, run by ${data.engine}.` +
  (left
    ? ` ${left} ${left === 1 ? "image" : "images"} could not be read and ${left === 1 ? "was" : "were"} left out.`
    : "");
for (const draw of [headline, stages, blocks, examples]) draw();
Dom.themeButton(() => {});
