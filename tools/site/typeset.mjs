// Reads a JSON list of {text, display} on standard input and prints the list of their HTML. An equation that cannot be
// typeset is an error, so a slip of the pen stops the build of the site.
import { readFileSync } from "node:fs";
import katex from "katex";

const equations = JSON.parse(readFileSync(0, "utf-8"));
const html = equations.map(({ text, display }) =>
  katex.renderToString(text, { displayMode: display, throwOnError: true, strict: "error" }),
);
process.stdout.write(JSON.stringify(html));
