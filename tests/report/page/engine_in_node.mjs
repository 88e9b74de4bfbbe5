// node engine_in_node.mjs ENGINE.MJS JOBS.JSON: the engine of the live page outside a browser, for test_engine.py.
// A job is {module, file, pictures: [{pixels, width, height}], codes}; `codes` is the file that takes all codes.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [script, list] = process.argv.slice(2);
const { Network } = await import(pathToFileURL(script));

async function answer({ module, file, pictures, codes }) {
  let engine;
  try {
    engine = await Network.open(readFileSync(module), readFileSync(file));
  } catch (error) {
    return { error: error.message, rule: error.rule ?? null, trap: error instanceof WebAssembly.RuntimeError };
  }
  const runs = pictures.map(({ pixels, width, height }) => {
    const prepared = engine.prepare({ pixels: readFileSync(pixels), width, height });
    return { prepared, ...engine.watch(prepared) };
  });
  writeFileSync(codes, Buffer.concat(runs.flatMap((run) => [run.prepared, Buffer.from(run.codes.buffer)])));
  return { logits: runs.map((run) => run.integers.map(String)), real: runs.map((run) => run.logits) };
}

const answers = [];
for (const job of JSON.parse(readFileSync(list, "utf8"))) answers.push(await answer(job));
process.stdout.write(JSON.stringify(answers));
