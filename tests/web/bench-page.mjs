// Measuring a page: how long it takes to open, what it costs the main thread, whether it stands still.

import { until } from "./until.mjs";

/** Opens an address in a fresh page with an empty cache, and waits for a condition in it. */
export async function opened(context, url, ready, slower = 1) {
  const page = await context.newPage();
  const cdp = await context.newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.clearBrowserCache");
  await cdp.send("Network.setBypassServiceWorker", { bypass: true });
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  if (slower > 1) await cdp.send("Emulation.setCPUThrottlingRate", { rate: slower });
  let bytes = 0;
  cdp.on("Network.loadingFinished", ({ encodedDataLength }) => (bytes += encodedDataLength));
  cdp.on("Network.webSocketFrameReceived", ({ response }) => (bytes += response.payloadData.length));
  // The page itself looks, in every frame, so that no round trip of ours is in the time.
  await page.addInitScript(`{
    const ready = ${ready};
    const look = () => { if (document.body && ready()) requestAnimationFrame(() => { globalThis.shownAt = performance.now(); }); else requestAnimationFrame(look); };
    requestAnimationFrame(look);
  }`);
  const before = await main(cdp);
  await page.goto(url, { waitUntil: "commit" });
  const ms = await until("the page is ready", () => page.evaluate(() => globalThis.shownAt), 120_000);
  const after = await main(cdp);
  const { nodes, heapMb } = await counters(cdp);
  await page.close();
  return { ms, cpuMs: after - before, nodes, heapMb, kb: bytes / 1024 };
}

/** A row of the report: what opening the page costs, also with a processor that is four times slower, and how it scrolls. */
export function costs(middle, slowMs, gaps) {
  return {
    open_ms: middle.ms,
    open_cpu_ms: middle.cpuMs,
    open_nodes: middle.nodes,
    open_heap_mb: middle.heapMb,
    transferred_kb: middle.kb,
    open_slow_ms: slowMs,
    scroll_gap_p50_ms: gaps.p50,
    scroll_gap_p95_ms: gaps.p95,
    scroll_gap_max_ms: gaps.max,
  };
}

/** What the main thread has worked so far, in milliseconds. */
export async function main(cdp) {
  const { metrics } = await cdp.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration").value * 1000;
}

export async function counters(cdp) {
  await cdp.send("HeapProfiler.collectGarbage");
  const { metrics } = await cdp.send("Performance.getMetrics");
  const of = (wanted) => metrics.find(({ name }) => name === wanted).value;
  const { nodes } = await cdp.send("Memory.getDOMCounters");
  return { nodes, heapMb: of("JSHeapUsedSize") / 1e6 };
}

/** Gaps between frames while an element is scrolled up by wheel steps for 4 s. */
export async function frames(page, selector) {
  const box = await page.locator(selector).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  const gaps = page.evaluate(
    () =>
      new Promise((done) => {
        const seen = [];
        let last = performance.now();
        const began = last;
        const tick = (now) => {
          seen.push(now - last);
          last = now;
          if (now - began < 4000) requestAnimationFrame(tick);
          else done(seen.slice(1));
        };
        requestAnimationFrame(tick);
      }),
  );
  const end = Date.now() + 4000;
  for (let step = 0; Date.now() < end; step += 1) {
    await page.mouse.wheel(0, Math.floor(step / 25) % 2 === 0 ? -240 : 240);
  }
  const sorted = (await gaps).sort((one, other) => one - other);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { p50: at(0.5), p95: at(0.95), max: sorted.at(-1) };
}

/** What a stream costs while it is followed, and how soon a typed letter is painted meanwhile. */
export async function streamed(page, seconds, begin) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  let chunks = 0;
  cdp.on("Network.webSocketFrameReceived", () => (chunks += 1));
  await cdp.send("Network.enable");
  await page.evaluate(() => {
    globalThis.flushes = 0;
    globalThis.long = 0;
    new MutationObserver(() => (globalThis.flushes += 1)).observe(document.querySelector('[role="log"]'), { childList: true, subtree: true, characterData: true });
    new PerformanceObserver((list) => (globalThis.long += list.getEntries().length)).observe({ type: "longtask" });
  });
  await begin();
  await until("it streams", () => page.evaluate(() => globalThis.flushes > 2));
  const before = { cpu: await main(cdp), flushes: await page.evaluate(() => globalThis.flushes), at: Date.now() };
  const typed = [];
  const box = page.getByRole("textbox").last();
  await box.focus();
  while (Date.now() - before.at < (seconds - 1) * 1000) typed.push(await keyToPaint(page));
  const after = { cpu: await main(cdp), flushes: await page.evaluate(() => globalThis.flushes), at: Date.now() };
  const time = (after.at - before.at) / 1000;
  const flushes = after.flushes - before.flushes;
  const { nodes, heapMb } = await counters(cdp);
  typed.sort((one, other) => one - other);
  await box.fill("");
  return {
    stream_frames: chunks / time,
    stream_flush_ms: (after.cpu - before.cpu) / flushes,
    stream_flushes: flushes / time,
    stream_cpu_percent: (after.cpu - before.cpu) / time / 10,
    stream_long_tasks: await page.evaluate(() => globalThis.long),
    stream_nodes: nodes,
    stream_heap_mb: heapMb,
    type_ms: typed[Math.floor(typed.length * 0.95)],
  };
}

async function keyToPaint(page) {
  // The listener is there before the key is: what was sent later may come earlier to a busy page.
  await page.evaluate(() => {
    globalThis.painted = new Promise((done) => {
      addEventListener("keydown", (event) => requestAnimationFrame(() => setTimeout(() => done(performance.now() - event.timeStamp))), { once: true, capture: true });
    });
  });
  await page.keyboard.press("x");
  const ms = await page.evaluate(() => globalThis.painted);
  await new Promise((wake) => setTimeout(wake, 200));
  return ms;
}

/** How far a row in the middle of the screen moves, at most, while output arrives below it. */
export async function anchor(page, selector, seconds) {
  await until("it streams", () => page.evaluate((selector) => document.querySelector(selector).scrollHeight > 3000, selector));
  await page.evaluate((selector) => document.querySelector(selector).scrollBy(0, -900), selector);
  return page.evaluate(
    ({ selector, seconds }) =>
      new Promise((done, fail) => {
        const log = document.querySelector(selector);
        const { top, height, left, width } = log.getBoundingClientRect();
        requestAnimationFrame(() => {
          const read = document.elementFromPoint(left + width / 2, top + height / 2);
          const began = performance.now();
          const place = read.getBoundingClientRect().top;
          const tall = log.scrollHeight;
          let most = 0;
          const look = (now) => {
            most = Math.max(most, Math.abs(read.getBoundingClientRect().top - place));
            if (now - began < seconds * 1000) return requestAnimationFrame(look);
            if (log.scrollHeight <= tall) fail(new Error("nothing arrived below"));
            done(most);
          };
          requestAnimationFrame(look);
        });
      }),
    { selector, seconds },
  );
}
