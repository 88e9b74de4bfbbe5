// The live page: pictures come from a file, the clipboard, the camera or the samples, and every panel follows.
"use strict";

const CAMERA = { video: { facingMode: "environment", width: { ideal: 640 }, height: { ideal: 480 } }, audio: false };
// The camera leaves time for hands and eyes between two pictures.
const CAMERA_MILLISECONDS = 120;
// A screen reader is told of what the camera sees no more often than this.
const SAID_MILLISECONDS = 2000;
// Background work gives way to the page when it has taken this long.
const PATIENCE_MILLISECONDS = 30;

/** Base64 text to bytes. */
Lapis.bytes = (text) => {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let n = 0; n < packed.length; n++) bytes[n] = packed.charCodeAt(n);
  return bytes;
};

/** A PNG that the page holds. */
Lapis.decodeUrl = (url) => toPixels(Lapis.bytes(url.split(",")[1]));

Lapis.Live = class {
  static async open(data) {
    const engine = await load(Lapis.bytes(data.file), {
      engines: data.engines.map(({ name, code }) => ({ name, code: Lapis.bytes(code) })),
      probe: Lapis.bytes(data.samples[0].image.split(",")[1]),
      logits: data.first_logits,
    });
    // The network is in the engine now.
    const executor = `the C engine in this tab (WebAssembly, ${engine.engine})`;
    return new Lapis.Live(engine, { ...data, engines: null, file: null, executor }, await Lapis.tables(data));
  }

  constructor(engine, data, tables) {
    Object.assign(this, { engine, data, tables, page: null, stream: null, turn: 0 });
  }

  /** Run the network on a picture {pixels, width, height}. What takes many rows or runs comes later: `findDecision`. */
  explain(picture, name) {
    const { data, engine } = this;
    const pixels = engine.prepare(picture);
    const { logits, integers, codes } = engine.watch(pixels);
    const bare = new Lapis.Run({ ...data, integers, logits, pixels }, codes, this.tables);
    const fired = Measures.fired(bare);
    const activities = Measures.activities(data, fired);
    Object.assign(bare.data, {
      picture: name,
      image: this.draw(pixels),
      fired,
      rollout: null,
      rolloutSays: "",
      energy: data.energy_rules.map((rule) => Measures.energy(rule, activities)),
      int8_ratio: Measures.energy(data.int8_rule, activities).ratio,
      evidence: null,
      evidenceSays: "",
    });
    return bare;
  }

  /** The prepared pixels as an image for the page. */
  draw(pixels) {
    const size = this.data.config.image_size;
    const canvas = element("canvas", { width: size, height: size });
    const drawn = new ImageData(size, size);
    drawn.data.fill(255);
    for (let n = 0; n < pixels.length; n++) drawn.data[n + Math.floor(n / 3)] = pixels[n];
    canvas.getContext("2d").putImageData(drawn, 0, 0);
    return canvas.toDataURL();
  }

  async firstRun() {
    const [sample] = this.data.samples;
    const run = this.explain(await Lapis.decodeUrl(sample.image), sample.name);
    // The page opens on the patch that counts most.
    run.data.rollout = await Measures.rollout(run, () => true);
    return run;
  }

  // The controls

  attach(page) {
    this.page = page;
    byId("choose").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", (event) => {
      this.takeFile(event.target.files[0]);
      event.target.value = "";
    });
    byId("camera").addEventListener("click", () => (this.stream ? this.stopCamera() : this.startCamera()));
    byId("paste").addEventListener("click", () => this.pasteByButton());
    byId("paste").hidden = !navigator.clipboard?.read;
    addEventListener("paste", (event) => {
      const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
      if (file) this.takeFile(file, "pasted picture");
      else this.say("The clipboard holds no picture.");
    });
    this.attachDrop();
    this.buildSamples();
    this.settle();
  }

  attachDrop() {
    const over = (on) => document.body.classList.toggle("is-over", on);
    addEventListener("dragover", (event) => {
      event.preventDefault();
      over(true);
    });
    addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
    addEventListener("drop", (event) => {
      event.preventDefault();
      over(false);
      if (event.dataTransfer.files.length) this.takeFile(event.dataTransfer.files[0]);
      else this.say("What was dropped is not a file; save the picture first, then drop it.");
    });
  }

  buildSamples() {
    byId("samples").replaceChildren(
      ...this.data.samples.map((sample) => {
        const button = element(
          "button",
          { type: "button", className: "sample" },
          element("img", { src: sample.image, alt: "" }),
        );
        button.setAttribute("aria-label", sample.name);
        button.title = sample.name;
        button.addEventListener("click", () => this.take(() => Lapis.decodeUrl(sample.image), sample.name));
        return button;
      }),
    );
    const buttons = [...byId("samples").children];
    Dom.oneStop(buttons);
    Dom.roving(byId("samples"), ".sample", () => {}, Dom.perLine);
  }

  takeFile(file, name = file?.name) {
    if (file) this.take(() => toPixels(file), name);
  }

  /** Explain the picture that `decode` gives; what goes wrong is said, and the page stays as it was. */
  async take(decode, name) {
    this.stopCamera();
    const turn = ++this.turn;
    try {
      const picture = await decode();
      // Another picture may have come while this one was decoded.
      if (turn !== this.turn) return;
      this.page.show(this.explain(picture, name));
      this.settle();
    } catch (error) {
      this.say(`${name} cannot be explained: ${error.message}.`);
    }
  }

  say(text) {
    byId("live-status").textContent = text;
  }

  /** Say the answer, then look for the evidence while the page is idle. */
  settle() {
    this.sayTime();
    const { data } = this.page.run;
    const shares = Lapis.softmax(data.logits);
    this.say(`${data.picture}: ${Lapis.answer(data, shares).name}, ${Lapis.percent(Math.max(...shares))}.`);
    this.weighed = this.findDecision();
  }

  sayTime() {
    const { milliseconds } = this.engine;
    byId("live-time").textContent = `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms per image, one thread`;
  }

  async findDecision() {
    const turn = ++this.turn;
    const { run } = this.page;
    const { data } = run;
    let rested = performance.now();
    const pause = async (done, all) => {
      if (performance.now() - rested > PATIENCE_MILLISECONDS) {
        data.evidenceSays = all
          ? `Hiding one part of the picture after the other: ${done} of ${all}.`
          : "Following the attention of all blocks.";
        byId("evidence-says").textContent = data.evidenceSays;
        await new Promise((resume) => setTimeout(resume));
        rested = performance.now();
      }
      return turn === this.turn;
    };
    data.rollout ??= await Measures.rollout(run, pause);
    if (!data.rollout) return;
    this.page.decision.draw();
    const evidence = await Measures.evidence(this.engine, data, data.pixels, data.logits, pause);
    if (!evidence) return;
    data.evidence = evidence;
    this.page.decision.draw();
    this.sayTime();
  }

  async pasteByButton() {
    try {
      for (const item of await navigator.clipboard.read()) {
        const type = item.types.find((each) => each.startsWith("image/"));
        if (type) return this.takeFile(await item.getType(type), "pasted picture");
      }
      this.say("The clipboard holds no picture.");
    } catch {
      this.say("The browser does not let this page read the clipboard; press Ctrl+V, or ⌘V on a Mac.");
    }
  }

  // The camera

  async startCamera() {
    const turn = ++this.turn;
    try {
      const stream = await navigator.mediaDevices.getUserMedia(CAMERA);
      this.stream = stream;
      // Another picture may have come while the reader was asked.
      if (turn !== this.turn) return this.stopCamera();
    } catch {
      this.say("The browser gives this page no camera; take a photo and choose it, which phones offer there.");
      return;
    }
    const video = byId("video");
    video.srcObject = this.stream;
    video.hidden = false;
    await video.play();
    this.showCamera(true);
    this.say("The camera is on; every picture is classified as it comes.");
    Object.assign(this, { said: "", saidAt: performance.now() });
    this.watchCamera();
  }

  watchCamera() {
    if (!this.stream) return;
    const video = byId("video");
    if (video.videoWidth) {
      const run = this.explain(draw(video), "camera");
      run.data.rolloutSays = "The rollout waits until the camera stops.";
      run.data.evidenceSays = "The evidence takes many runs and waits until the camera stops.";
      this.page.show(run);
      this.sayTime();
      this.sayCamera();
    }
    setTimeout(() => this.watchCamera(), CAMERA_MILLISECONDS);
  }

  /** The answer in words, when it is another one than before. */
  sayCamera() {
    const answer = byId("answer").textContent;
    if (answer === this.said || performance.now() - this.saidAt < SAID_MILLISECONDS) return;
    Object.assign(this, { said: answer, saidAt: performance.now() });
    this.say(`The camera shows: ${answer}.`);
  }

  /** Stop on the last picture, which stays. */
  stopCamera() {
    if (!this.stream) return;
    for (const track of this.stream.getTracks()) track.stop();
    this.stream = null;
    byId("video").hidden = true;
    byId("video").srcObject = null;
    this.showCamera(false);
    this.settle();
  }

  showCamera(on) {
    byId("camera").setAttribute("aria-pressed", String(on));
    byId("camera").textContent = on ? "Stop the camera" : "Use the camera";
  }
};

Lapis.open = async (data) => {
  Lapis.live = await Lapis.Live.open(data);
  return Lapis.live.firstRun();
};
Lapis.opened = (page) => Lapis.live.attach(page);
