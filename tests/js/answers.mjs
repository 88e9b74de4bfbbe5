// The same in Node, in a page and in a worker, for test_npm.py: integer logits and the best classes of pictures.
export async function answers({ load, toPixels }, model, pictures) {
  const network = await load(model);
  const found = [];
  for (const picture of pictures) {
    const { integers } = network.run(network.prepare(await toPixels(picture)));
    found.push({ integers: integers.map(String), best: await network.predict(picture, 3) });
  }
  return found;
}

/** {url or base64 text of a file, or raw pixels as base64} as what the package takes. */
export function picture({ file, data, width, height }) {
  const bytes = Uint8Array.from(atob(file ?? data), (c) => c.charCodeAt(0));
  return file ? bytes : { data: bytes, width, height };
}
