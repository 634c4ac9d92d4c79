// Sends what a program for Node sends to Stripe's API to charge-once instead, without a change to the program:
// by node:https, by fetch and by undici before 8, also if Stripe's SDK or a bundle calls them. It refuses every
// other connection to Stripe.
//
//   export STRIPE_BASE=http://127.0.0.1:8080 NODE_OPTIONS="--require=/path/to/stripe_redirect.cjs"

'use strict';

const http = require('node:http');
const https = require('node:https');
const { syncBuiltinESMExports } = require('node:module');
const net = require('node:net');
const tls = require('node:tls');
const { urlToHttpOptions } = require('node:url');

// Without one, the program doesn't start.
const base = new URL(process.env.STRIPE_BASE);
const API = 'api.stripe.com';

const isStripe = (host) => /(^|\.)stripe\.com\.?(:\d+)?$/i.test(host ?? '');

const refusal = (host) => new Error(`stripe_redirect.cjs refuses a connection to ${host}: it can't be redirected`);

const { request: send, Agent } = base.protocol === 'http:' ? http : https;
const agent = new Agent({ keepAlive: true });

/** The request with these options, at the base. */
function redirected(options, callback) {
  const { protocol, hostname, port } = urlToHttpOptions(base);
  const headers = Array.isArray(options.headers) ? options.headers : { ...options.headers };
  for (const name of Object.keys(headers)) if (name.toLowerCase() === 'host') delete headers[name];
  const connection = { protocol, hostname, port, agent, defaultPort: undefined, servername: undefined };
  const request = send({ ...options, ...connection, headers }, callback);
  // The SDK writes its request when TLS is set up.
  if (protocol === 'http:') {
    request.once('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => socket.emit('secureConnect'));
    });
  }
  return request;
}

for (const module of [http, https]) {
  const { request } = module;
  module.request = function (...given) {
    const [url, more] = given;
    const isUrl = typeof url === 'string' || url instanceof URL;
    const options = isUrl ? { ...urlToHttpOptions(new URL(url)), ...more } : url;
    if ((options?.hostname || options?.host) === API) {
      return redirected(options, given.find((each) => typeof each === 'function'));
    }
    // A proxy is asked for a URL, or to connect.
    const [, asked] = /^(?:https?:\/\/)?([^/]+)/i.exec(options?.path ?? '') ?? [];
    if (isStripe(asked)) throw refusal(asked);
    return request.apply(this, given);
  };
  module.get = function (...given) {
    const request = module.request(...given);
    request.end();
    return request;
  };
}

const { fetch } = globalThis;
globalThis.fetch = async function (input, init) {
  const url = new URL(input?.url ?? input);
  if (url.hostname !== API) return fetch(input, init);
  const { protocol, host, port } = base;
  Object.assign(url, { protocol, host, port });
  return fetch(input instanceof Request ? new Request(url, input) : url, init);
};

// undici sends through the dispatcher that the built-in `fetch` made, until a program sets another.
fetch('data:,');
const DISPATCHER = Symbol.for('undici.globalDispatcher.1');
const dispatcher = globalThis[DISPATCHER];
globalThis[DISPATCHER] = Object.create(dispatcher, {
  dispatch: {
    value(options, handler) {
      const { hostname } = new URL(options.origin);
      const origin = hostname === API ? base.origin : options.origin;
      return dispatcher.dispatch({ ...options, origin }, handler);
    },
  },
});

// All that connects from JavaScript comes here, whichever client it is.
const { connect } = net.Socket.prototype;
net.Socket.prototype.connect = function (...given) {
  // Node's own code passes what it parsed, as one array.
  const [options, name] = Array.isArray(given[0]) ? given[0] : given;
  const host = options?.host ?? name;
  if (!isStripe(host)) return connect.apply(this, given);
  setImmediate(() => this.destroy(refusal(host)));
  return this;
};

// By way of a proxy, TLS is where Stripe's name occurs.
const { setServername } = tls.TLSSocket.prototype;
tls.TLSSocket.prototype.setServername = function (name) {
  if (!isStripe(name)) return setServername.call(this, name);
  setImmediate(() => this.destroy(refusal(name)));
};

syncBuiltinESMExports();
