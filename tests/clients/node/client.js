// SPDX-License-Identifier: Apache-2.0

// A client in JavaScript, of our .proto files: `node client.js ADDRESS SCENARIO` ends with 0 when the server has answered as
// ../README.md says.
"use strict";

const assert = require("assert");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const PROTOS = loader.loadSync(["proto/inference.proto", "proto/health.proto"], {
  includeDirs: [process.env.PROTOS], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true,
});
const described = grpc.loadPackageDefinition(PROTOS);
const [address, scenario] = process.argv.slice(2);
const GZIP = { "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip };
const triton = new described.inference.GRPCInferenceService(address, grpc.credentials.createInsecure(), {
  "grpc.max_receive_message_length": -1, ...(scenario === "gzip" ? GZIP : {}),
});
const health = new described.grpc.health.v1.Health(address, grpc.credentials.createInsecure());
const within = () => ({ deadline: Date.now() + 60000 });

// The answer of a method, or its error.
function call(client, method, request, options = within()) {
  return new Promise((resolve, reject) => {
    client[method](request, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

const numbers = (n) => Float32Array.from({ length: n }, (_, i) => i % 100);
const raw = (values) => Buffer.from(values.buffer);

function echo(values) {
  return {
    model_name: "echo", id: "one", inputs: [{ name: "INPUT0", datatype: "FP32", shape: [values.length] }],
    raw_input_contents: [raw(values)],
  };
}

function assertEcho(answer, values) {
  assert.strictEqual(answer.id, "one");
  assert(answer.raw_output_contents[0].equals(raw(values)), "other values");
}

// A request for an answer of each of these delays.
function repeat(delays) {
  const tensor = (name, datatype, n) => ({ name, datatype, shape: [n] });
  const n = delays.length;
  return {
    model_name: "repeat", inputs: [tensor("IN", "INT32", n), tensor("DELAY", "UINT32", n), tensor("WAIT", "UINT32", 1)],
    raw_input_contents: [raw(Int32Array.from(delays.keys())), raw(Uint32Array.from(delays)), raw(Uint32Array.of(0))],
  };
}

// The answers of a stream, one after the other; an error of the stream is thrown.
async function next(answers) {
  const { value, done } = await answers.next();
  assert(!done, "the stream has ended");
  assert.strictEqual(value.error_message, "");
  return value.infer_response.raw_output_contents[0].readInt32LE();
}

async function code(promise) {
  return promise.then(() => grpc.status.OK, (error) => error.code);
}

const scenarios = {
  async health() {
    assert((await call(triton, "ServerLive", {})).live);
    assert((await call(triton, "ServerReady", {})).ready);
    assert.strictEqual((await call(health, "Check", {})).status, "SERVING");
  },
  async metadata() {
    const metadata = await call(triton, "ModelMetadata", { name: "echo" });
    assert.deepStrictEqual(metadata.inputs[0], { name: "INPUT0", datatype: "FP32", shape: [-1] });
    assert.strictEqual((await call(triton, "ModelConfig", { name: "echo" })).config.backend, "identity");
  },
  async raw() {
    for (const n of [0, 1, 1000, 3000000]) assertEcho(await call(triton, "ModelInfer", echo(numbers(n))), numbers(n));
  },
  async typed() {
    const request = echo(numbers(3));
    delete request.raw_input_contents;
    request.inputs[0].contents = { fp32_contents: [...numbers(3)] };
    assertEcho(await call(triton, "ModelInfer", request), numbers(3));
  },
  async error() {
    const request = echo(numbers(1));
    await assert.rejects(call(triton, "ModelInfer", { ...request, model_name: "nobody" }), {
      code: grpc.status.NOT_FOUND, details: "Request for unknown model: 'nobody' is not found",
    });
    assert.strictEqual(await code(call(triton, "ModelInfer", { ...request, inputs: [] })), grpc.status.INVALID_ARGUMENT);
  },
  async stream() {
    const stream = triton.ModelStreamInfer(within());
    const answers = stream[Symbol.asyncIterator]();
    for (let i = 0; i < 3; i++) {
      stream.write(repeat([0, 0, 0, 0]));
      for (let k = 0; k < 4; k++) assert.strictEqual(await next(answers), k);
    }
    const status = new Promise((resolve) => stream.on("status", resolve));
    stream.end();
    assert((await answers.next()).done);
    assert.strictEqual((await status).code, grpc.status.OK);
  },
  async deadline() {
    const request = { ...echo(numbers(1)), model_name: "slow" };
    assert.strictEqual(await code(call(triton, "ModelInfer", request, { deadline: Date.now() + 100 })),
      grpc.status.DEADLINE_EXCEEDED);
  },
  async cancel() {
    const stream = triton.ModelStreamInfer(within());
    const answers = stream[Symbol.asyncIterator]();
    stream.write(repeat([0, 60000]));
    assert.strictEqual(await next(answers), 0);
    stream.cancel();
    assert.strictEqual(await code(answers.next()), grpc.status.CANCELLED);
    assertEcho(await call(triton, "ModelInfer", echo(numbers(1))), numbers(1));
  },
  async gzip() {
    assertEcho(await call(triton, "ModelInfer", echo(numbers(100000))), numbers(100000));
  },
};

scenarios[scenario]().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
