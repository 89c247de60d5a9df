// Runs Perfetto's importer (trace_processor.wasm) outside a browser: bytes of TraceProcessorRpcStream
// come in on stdin and go out on stdout. "ready" on stderr says that it listens.
//
//   node engine.js DIR     DIR holds the UI's engine_bundle.js and the .wasm files beside it
//
// The bundle expects to be a web worker, so it gets what it asks one for and nothing else.
'use strict';
const fs = require('fs');
const path = require('path');

const directory = process.argv[2];
const read = (name) => fs.readFileSync(path.join(directory, path.basename(String(name))));

function writeAll(bytes) {
  for (let done = 0; done < bytes.length;) {
    try {
      done += fs.writeSync(1, bytes, done);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error; // the pipe is full
    }
  }
}

// The bundle instantiates the module synchronously, and answers only after it has called
// trace_processor_rpc_init; the wrapped export tells when that is.
class WatchedInstance {
  constructor(module, imports) {
    const { exports } = new WebAssembly.Instance(module, imports);
    const init = exports.trace_processor_rpc_init;
    const initThenListen = (...given) => {
      setImmediate(listen);
      return init(...given);
    };
    this.exports = { ...exports, trace_processor_rpc_init: initThenListen };
  }
}
const wasm = Object.create(WebAssembly, { Instance: { value: WatchedInstance } });

class LocalRequest { // synchronous XMLHttpRequest for files beside the bundle
  open(_method, url) { this.url = url; }
  send() {
    const bytes = read(this.url);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
}

const quiet = () => {};
const worker = {
  WorkerGlobalScope: function WorkerGlobalScope() {},
  location: { href: 'http://localhost/', protocol: 'http:', host: 'localhost' },
  fetch: async (url) => new Response(read(url), { headers: { 'Content-Type': 'application/wasm' } }),
  XMLHttpRequest: LocalRequest,
  WebAssembly: wasm,
  console: { log: quiet, info: quiet, debug: quiet, warn: quiet, error: (...given) => console.error(...given) },
  process: undefined,
};
worker.self = worker;
worker.globalThis = worker;

const port = { postMessage: writeAll };

function listen() {
  process.stderr.write('ready\n');
  process.stdin.on('data', (bytes) => port.onmessage({ data: bytes }));
  process.stdin.on('end', () => process.exit(0));
}

const names = Object.keys(worker).filter((name) => name !== 'globalThis');
new Function(...names, read('engine_bundle.js').toString())(...names.map((name) => worker[name]));
worker.onmessage({ data: port });
