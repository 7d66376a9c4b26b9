// The terminal client of the built binary, on a terminal that `tmux` plays.

import { execFileSync } from "node:child_process";
import { binary } from "./server.mjs";
import { until } from "./until.mjs";

const SHOW_MS = 90_000;
/** So tall that a whole conversation of a test stands on it. */
const SIZE = { columns: 110, lines: 160 };
let started = 0;

export class Terminal {
  /** Runs a command of the program in a machine's folder, as somebody does who sits there. */
  static open(machine, args, env = {}) {
    started += 1;
    const terminal = new Terminal();
    terminal.socket = `ropewalk-web-${process.pid}-${started}`;
    const variables = Object.entries({ ...machine.environment(), ...env }).map(([name, value]) => quoted(`${name}=${value}`));
    const line = `env -i ${variables.join(" ")} TERM="$TERM" ${[binary(), ...args].map(quoted).join(" ")}; echo "ended with $?"; exec sleep 1000`;
    terminal.tmux("-f", "/dev/null", "new-session", "-d", "-x", String(SIZE.columns), "-y", String(SIZE.lines), "-c", machine.workspace, "sh", "-c", line);
    return terminal;
  }

  /** Keys as `tmux` names them. */
  keys(...keys) {
    this.tmux("send-keys", ...keys);
  }

  say(text) {
    this.tmux("send-keys", "-l", text);
    this.keys("Enter");
  }

  screen() {
    return this.tmux("capture-pane", "-p");
  }

  async until(what, is) {
    return until(what, () => is(this.screen()), SHOW_MS).catch((error) => {
      throw new Error(`${error.message}\n${this.screen()}`);
    });
  }

  async shows(text) {
    await this.until(`the terminal shows "${text}"`, (screen) => screen.includes(text));
  }

  asks(screen = this.screen()) {
    return screen.includes("y allow once");
  }

  /** Presses a key until nothing is asked any longer. Just after a question appeared keys are ignored, and whoever presses
   * on without a pause keeps it so. */
  async answer(key) {
    await this.until("the key is accepted", (screen) => {
      if (this.asks(screen) && !screen.includes("Key ignored")) this.keys(key);
      return !this.asks(screen);
    });
  }

  close() {
    this.tmux("kill-server");
  }

  tmux(...args) {
    return execFileSync("tmux", ["-L", this.socket, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }
}

function quoted(word) {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
