// The report of a fine-tuning: what the network gets right and wrong on images that it never saw.
"use strict";

const data = JSON.parse(byId("data").textContent);

const percent = (part, all, digits = 1) => `${((100 * part) / all).toFixed(digits)} %`;
const line = Dom.row;
const images = (count) => `${count} ${count === 1 ? "image" : "images"}`;

function headline() {
  const { accuracy } = data;
  const [low, high] = data.interval95;
  const tiles = [
    [
      percent(accuracy.correct, accuracy.images),
      `of ${accuracy.images} held-out images right (95 % interval: ${low.toFixed(0)} to ${high.toFixed(0)} %)`,
    ],
    [
      String(data.classes.length),
      `classes; always naming the commonest is right for ${data.commonest_class.toFixed(1)} %`,
    ],
    Charts.energyTile(data),
    [`${(data.bytes / 1e6).toFixed(2)} MB`, `packed, ${data.weight_bits}-bit weights`],
  ];
  byId("headline").replaceChildren(
    ...tiles.map(([value, name]) =>
      element("div", { className: "card" }, element("dt", {}, name), element("dd", {}, value)),
    ),
  );
}

function classes() {
  const sorted = [...data.classes].filter((row) => row.images).sort((a, b) => a.right / a.images - b.right / b.images);
  const shown = sorted.slice(0, data.shown_classes);
  byId("classes-says").textContent =
    "The share of each class's held-out images that was named right, the weakest class first." +
    (shown.length < sorted.length ? ` The weakest ${shown.length} of ${sorted.length} classes are shown.` : "");
  byId("by-class").replaceChildren(
    ...shown.map((row) =>
      element(
        "div",
        { className: "pace" },
        element("span", {}, row.name),
        element(
          "span",
          { className: "pace-bar" },
          element("span", { className: "ours-bar", style: `width:${(100 * row.right) / row.images}%` }),
        ),
        element("b", {}, `${row.right} of ${row.images}`),
      ),
    ),
  );
}

function confusion() {
  const table = byId("confusion");
  const common = data.confused.map((row) => `${row.label} as ${row.answer} (${row.images})`).slice(0, 3);
  const most = common.length ? ` Most often: ${common.join(", ")}.` : " Nothing was taken for anything else.";
  if (!data.confusion) {
    byId("confusion-says").textContent = `Too many classes for a matrix; the commonest mistakes are listed.`;
    const rows = data.confused.map((row) => line("td", [row.label, row.answer, String(row.images)]));
    const head = element("thead", {}, line("th", ["is", "taken for", "images"]));
    table.className = "plain";
    table.replaceChildren(head, element("tbody", {}, ...rows));
    return;
  }
  byId("confusion-says").textContent = `A row is what the images show, a column what the network named.${most}`;
  const names = data.classes.map((row) => row.name);
  // Columns of a phone have room for a number only.
  const head = (name, scope, n) =>
    element("th", { scope, title: name }, element("i", { className: "number" }, n), element("span", {}, name));
  const rows = data.confusion.map((counts, truth) => {
    const all = data.classes[truth].images;
    const cells = counts.map((count, answer) => {
      const share = all ? count / all : 0;
      const cell = element("span", {
        className: "cell",
        title: `${names[truth]} as ${names[answer]}: ${images(count)}`,
      });
      cell.textContent = count ? String(count) : "·";
      if (count)
        Object.assign(cell.style, { background: Charts.colour(share), color: Charts.inkOn(Charts.colour(share)) });
      return element("td", {}, cell);
    });
    return element(
      "tr",
      {},
      head(names[truth], "row", `${truth + 1} `),
      ...cells,
      element("td", { className: "all" }, String(all)),
    );
  });
  const heads = names.map((name, answer) => head(name, "col", String(answer + 1)));
  const top = element("tr", {}, element("th"), ...heads, element("th", { className: "all" }, "images"));
  table.className = "activity matrix";
  table.replaceChildren(element("thead", {}, top), element("tbody", {}, ...rows));
}

function mistakes() {
  const wrong = data.accuracy.images - data.accuracy.correct;
  byId("mistakes-says").textContent = wrong
    ? `${wrong} of ${images(data.accuracy.images)} were named wrong. The network was surest of these; they are shown as it sees them.`
    : "No held-out image was named wrong.";
  byId("mistakes").replaceChildren(
    ...data.mistakes.map((one, at) =>
      element(
        "figure",
        { className: "answer wrong", title: one.file },
        element("img", { src: data.pictures[at], alt: `${one.label}, taken for ${one.answer}` }),
        element(
          "figcaption",
          {},
          `✗ ${one.answer} ${Math.round(100 * one.score)}\u00a0%`,
          element("small", {}, `is ${one.label} (${Math.round(100 * one.label_score)}\u00a0%)`),
          element("small", { className: "file" }, one.file.split("/").pop()),
        ),
      ),
    ),
  );
  byId("mistakes-next").textContent = wrong ? `See why: lapis explain ${data.file} ${data.mistakes[0].file}` : "";
}

function energy() {
  Charts.energyReport(data, "held-out images");
}

function made() {
  const held = data.split
    ? `${data.held_out_images} were set aside before training, the same share of every class`
    : `${data.held_out_images} are those of the folder for testing`;
  byId("made-says").textContent =
    `From ${data.start}, with ${data.train_images} images of ${data.folder}; ${held}. ` +
    (data.stages.length
      ? "They were looked at once, after the last step of a stage."
      : "Only the head was fitted; training usually adds a few points.");
  byId("made").closest(".card").hidden = !data.stages.length;
  byId("made").replaceChildren(
    element(
      "thead",
      {},
      line("th", ["stage", "held-out right", "epochs", "steps", "images per step", "rate", "seconds"]),
    ),
    element(
      "tbody",
      {},
      ...data.stages.map((row) =>
        line("td", [
          row.stage,
          `${row.top1.toFixed(1)} %`,
          Charts.number(row.epochs),
          String(row.steps),
          String(row.batch),
          row.lr.toExponential(1),
          row.seconds.toFixed(0),
        ]),
      ),
    ),
  );
}

byId("source").textContent =
  `${data.name} · ${(data.bytes / 1e6).toFixed(2)} MB · ${data.image_size} px · T = ${data.window}`;
byId("foot").textContent =
  `Lapis ${data.version}. Accuracy is that of the packed file ${data.file}, run by ${data.engine}.`;
for (const draw of [headline, classes, confusion, mistakes, energy, made]) draw();
Dom.themeButton(energy);
Dom.onWidth(energy);
