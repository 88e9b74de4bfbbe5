// What every page uses to find and to make its elements.
"use strict";

// biome-ignore lint/correctness/noUnusedVariables: the scripts of a page are joined to one.
const byId = (id) => document.getElementById(id);

// biome-ignore lint/correctness/noUnusedVariables: the scripts of a page are joined to one.
function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
