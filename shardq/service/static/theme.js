// Runs before the first paint, so that a chosen theme does not flash.
"use strict";
try {
  const theme = localStorage.getItem("shardq-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage may be off: the theme of the system is used */ }
