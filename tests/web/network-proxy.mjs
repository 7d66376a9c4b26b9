// What stands between a machine and the network: the one way out, which is cut and stalled when a test says so.
//
// It carries bytes to one place and understands none of them. To a program that is told of a proxy (`HTTP_PROXY`)
// it is one, because the place it leads to is the one that is asked for.

import { connect, createServer } from "node:net";

export class NetworkProxy {
  static async open(port) {
    const proxy = new NetworkProxy();
    proxy.server = createServer((client) => proxy.carry(client, port));
    await new Promise((ready) => proxy.server.listen(0, "127.0.0.1", ready));
    return proxy;
  }

  /** Both ends of every connection that is open. */
  sockets = new Set();
  stalled = false;
  /** How many connections there were. */
  carried = 0;

  get url() {
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  /** What leads a program through it. What is on this machine at an address of numbers is reached without it. */
  environment() {
    return { HTTP_PROXY: this.url, http_proxy: this.url, NO_PROXY: "127.0.0.1", no_proxy: "127.0.0.1" };
  }

  carry(client, port) {
    this.carried += 1;
    const hub = connect(port, "127.0.0.1");
    for (const [from, to] of [[client, hub], [hub, client]]) {
      this.sockets.add(from);
      from.setNoDelay(true);
      from.on("error", () => {});
      from.on("close", () => {
        this.sockets.delete(from);
        to.destroy();
      });
      from.on("data", (bytes) => {
        if (!to.write(bytes)) from.pause();
      });
      from.on("drain", () => this.stalled || to.resume());
      if (this.stalled) from.pause();
    }
  }

  /** Ends every connection, as a network does that is gone for a moment. */
  cut() {
    for (const socket of this.sockets) socket.destroy();
  }

  /** Connections stay open, and nothing moves on them. */
  stall(stalled) {
    this.stalled = stalled;
    for (const socket of this.sockets) {
      if (stalled) socket.pause();
      else socket.resume();
    }
  }

  async close() {
    this.cut();
    await new Promise((closed) => this.server.close(closed));
  }
}
