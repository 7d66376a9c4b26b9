// The push service of these tests reads what the standard says (RFC 8291, appendix A).

import assert from "node:assert/strict";
import { createECDH } from "node:crypto";
import { test } from "node:test";

import { open, start } from "./push-service.mjs";

const decoded = (text) => Buffer.from(text, "base64url");

test("the example of the standard is read", () => {
  const pair = createECDH("prime256v1");
  pair.setPrivateKey(decoded("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"));
  const browser = { pair, auth: decoded("BTBZMqHH6r4Tts7J_aSIgg") };
  const body = decoded(
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
  );
  assert.equal(open(body, browser).toString(), "When I grow up, I want to be a watermelon");
  body[body.length - 1] ^= 1;
  assert.throws(() => open(body, browser));
});

test("a push that is not in order is told apart", async () => {
  const service = await start();
  const { endpoint } = service.subscribe();
  await fetch(endpoint, { method: "POST", body: "hello", headers: { ttl: "60", "content-encoding": "aes128gcm" } });
  assert.match((await service.next()).wrong, /no VAPID token/);
  await fetch(`${service.origin}/push/99`, { method: "POST" });
  assert.match((await service.next()).wrong, /nobody subscribed/);
  await assert.rejects(service.next(10), /no push/);
  await service.close();
});
