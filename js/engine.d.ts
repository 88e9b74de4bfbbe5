/// <reference lib="dom" />

/** Anything that went wrong. `status` and `rule` are those of the C library, 0 where it was not asked. */
export class LapisError extends Error {
  readonly status: number;
  /** The rule of the format that a file breaks. */
  readonly rule: number;
}

export interface Prediction {
  /** The class's name, or its number where the file has no names. */
  label: string;
  /** Its share of the softmax of the logits. */
  score: number;
  index: number;
  logit: number;
}

/** Rows from the top; three or four bytes per pixel, red first. ImageData is one. */
export interface RawPicture {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

/** What a canvas draws: a canvas, an image, a video, a bitmap. */
export type Drawable = Exclude<CanvasImageSource, SVGImageElement>;

/** A picture of any size. A file's bytes and what a canvas draws need a browser. */
export type Picture = RawPicture | Drawable | Blob | ArrayBuffer | Uint8Array;

/** A picture as bytes, three per pixel. */
export interface Pixels {
  pixels: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

export interface Answer {
  /** The integer logits, the same on every machine. */
  integers: bigint[];
  /** The real numbers that they stand for. */
  logits: number[];
}

export interface LoadOptions {
  /** WebAssembly modules, fastest first, by address or as bytes; the package's own if none are given. */
  engines?: { name: string; code: string | URL | ArrayBuffer | Uint8Array }[];
  /** An engine is used if it gives these logits for this picture; without them, those of the last engine. */
  probe?: Picture;
  logits?: (bigint | string)[];
}

export class Network {
  private constructor();
  /** Side of the square that the network takes. */
  readonly size: number;
  readonly classes: string[];
  /** What the engine needs of a browser. */
  readonly engine: string;
  /** The median milliseconds of the last runs. */
  readonly milliseconds: number;
  /** The likeliest classes, best first. */
  predict(picture: Picture, topK?: number): Promise<Prediction[]>;
  /** A picture resized and cut as the network takes it. */
  prepare(picture: Pixels): Uint8Array;
  /** Logits of pixels that were prepared. */
  run(prepared: Uint8Array): Answer;
  /** The same with the codes of all measuring points, block by block. */
  watch(prepared: Uint8Array): Answer & { codes: Int8Array };
}

/** Open a packed network by its address (in Node also a path) or from its bytes. */
export function load(source: string | URL | ArrayBuffer | Uint8Array, options?: LoadOptions): Promise<Network>;
export function toPixels(picture: Picture): Promise<Pixels>;
export function draw(source: Drawable): Pixels;
