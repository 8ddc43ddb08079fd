// Light and dark: the system's choice unless the visitor makes another. Canvases read their colours here.
const KEY = "llmserve-theme";
const NAMES = ["ink", "muted", "line", "surface", "a", "b", "limit", "burst", "area", "page"];
let cached = null;

function forget() {
  cached = null;
  document.dispatchEvent(new Event("themechange"));
}

// The colours of the page as the canvas understands them.
export function colours() {
  if (!cached) {
    const style = getComputedStyle(document.documentElement);
    cached = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  }
  return cached;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function startTheme(button) {
  try {
    const kept = localStorage.getItem(KEY);
    if (kept) document.documentElement.dataset.theme = kept;
  } catch {
    // A browser without storage follows the system.
  }
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(KEY, document.documentElement.dataset.theme);
    } catch {
      // The choice holds for this visit.
    }
    show();
    forget();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { show(); forget(); });
  show();
}
