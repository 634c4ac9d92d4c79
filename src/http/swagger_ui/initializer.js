// Starts Swagger UI with this service's document.
//
// The keys in the document are always the same. In a browser, a key that was used before, here or by
// a colleague, would be a replay or a mistake. So each operation gets a fresh key when the page is
// loaded, and another one when an example or the encoding of the body is chosen. A second click on
// Execute is a retry: it sends the same key.

const KEY = 'Idempotency-Key';

function freshKey() {
  // crypto.randomUUID exists in secure contexts only, and this page may be served over HTTP.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

// What is chosen for each operation. Swagger UI repeats choices, so only another one counts.
const chosen = new Map();

function prepare(openapi) {
  // There is nothing to try of a webhook, and Swagger UI shows all of them beside the tags.
  delete openapi.webhooks;
  // One form for the API key. Basic authentication, with the same key, is for other clients.
  delete openapi.components.securitySchemes.basic;
  openapi.security = openapi.security.filter((scheme) => !scheme.basic);
  for (const [path, item] of Object.entries(openapi.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      for (const parameter of operation.parameters ?? []) {
        if (parameter.name === KEY) parameter.example = freshKey();
      }
      const encodings = operation.requestBody?.content ?? {};
      chosen.set(`${path} ${method} encoding`, Object.keys(encodings)[0]);
      for (const content of Object.values(encodings)) {
        if (!content.examples) continue;
        // The first example is the one that is filled in.
        const { tok_visa, ...others } = content.examples;
        content.examples = { tok_visa, ...others };
        chosen.set(`${path} ${method} example`, 'tok_visa');
      }
    }
  }
  return openapi;
}

function choose(system, [path, method], what, value) {
  const where = `${path} ${method} ${what}`;
  if (chosen.get(where) === value) return;
  chosen.set(where, value);
  const operation = system.specSelectors.specResolvedSubtree(['paths', path, method]);
  const key = operation.get('parameters').find((parameter) => parameter.get('name') === KEY);
  system.specActions.changeParamByIdentity([path, method], key, freshKey(), false);
}

// https://github.com/swagger-api/swagger-ui/blob/master/docs/customization/plugin-api.md
const FreshKeys = () => ({
  statePlugins: {
    oas3: {
      wrapActions: {
        setActiveExamplesMember: (original, system) => (payload) => {
          const { name, pathMethod, contextType } = payload;
          if (contextType === 'requestBody') choose(system, pathMethod, 'example', name);
          return original(payload);
        },
        setRequestContentType: (original, system) => (payload) => {
          choose(system, payload.pathMethod, 'encoding', payload.value);
          return original(payload);
        },
      },
    },
  },
});

// The API key stays over a reload, in this tab alone: what Swagger UI offers is localStorage, which would outlive the
// visit and be read by every tab.
const KeyOfTab = () => ({
  statePlugins: {
    auth: {
      wrapActions: {
        // It is called whenever a key comes or goes.
        persistAuthorizationIfNeeded: (original, system) => () => {
          const keys = system.authSelectors.authorized();
          if (keys.isEmpty()) sessionStorage.removeItem('authorized');
          else sessionStorage.setItem('authorized', JSON.stringify(keys));
        },
      },
    },
  },
});

// Above each reply: whether it is a replay, which its headers say far below, and what became of its key, in the
// console. The reply names the key of its own request, while the form may hold another one by now. Only a stored
// outcome names the request that executed, and only a stored outcome has a story for sure.
const Stories = () => ({
  wrapComponents: {
    liveResponse: (Original, { React }) => (props) => {
      const { createElement } = React;
      const reply = createElement(Original, props);
      const headers = props.response?.get('headers')?.toJS() ?? {};
      const parts = [];
      if (headers['idempotent-replayed'] === 'true') {
        const says = 'Replayed: nothing was executed again';
        parts.push(createElement('strong', { key: 'replayed', className: 'replayed' }, says));
      }
      const key = headers['original-request'] && headers['idempotency-key']?.replaceAll('"', '');
      if (HAS_CONSOLE && key) {
        const href = `/console/keys/${encodeURIComponent(key)}`;
        parts.push(createElement('a', { key: 'story', className: 'key-story', href }, `The story of ${key}`));
      }
      if (parts.length === 0) return reply;
      return createElement('div', null, createElement('p', { className: 'became' }, parts), reply);
    },
  },
});

// What the library's style lacks.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  .swagger-ui .became { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; overflow-wrap: anywhere; }
  /* A word in code is a chip, and must cover no line above or below it. */
  .swagger-ui .markdown p, .swagger-ui .renderedMarkdown p { line-height: 1.5; }
  .swagger-ui .markdown code, .swagger-ui .renderedMarkdown code {
    padding: 0 0.25em; line-height: 1.2; overflow-wrap: anywhere;
    box-decoration-break: clone; -webkit-box-decoration-break: clone;
  }
  .swagger-ui .replayed { padding: 0.1rem 0.6rem; border-radius: 1rem; background: #0a6330; color: #fff; }
  html.dark-mode body { background: #1c2022; }
  .to-console { margin: 0; padding: 0.75rem 1rem; font-family: sans-serif; }
  html.dark-mode .to-console a { color: #8ab8ff; }
  @media (max-width: 40rem) {
    #swagger-ui { overflow-x: clip; }
    .swagger-ui .wrapper { padding: 0 0.5rem; }
    .swagger-ui .opblock-tag, .swagger-ui .opblock-summary-path { overflow-wrap: anywhere; }
    .swagger-ui table { display: block; overflow-x: auto; }
    /* Nothing hovers over a phone, and a button must cover no text. */
    .swagger-ui .opblock .opblock-summary .view-line-link.copy-to-clipboard {
      width: 26px; margin: 0 4px; transition: none;
    }
    .swagger-ui :is(.highlight-code, .curl-command) { display: flex; flex-wrap: wrap; justify-content: flex-end; gap: 0.25rem; }
    .swagger-ui :is(.highlight-code, .curl-command) :is(.copy-to-clipboard, .download-contents) {
      position: static; width: auto; min-width: 30px; height: 30px;
    }
    .swagger-ui :is(.highlight-code, .curl-command) > :is(h4, div:has(> pre), pre) { flex: 1 0 100%; min-width: 0; }
    .swagger-ui :is(.highlight-code, .curl-command) > :is(.copy-to-clipboard, .download-contents) { order: -1; }
    .swagger-ui .curl-command > h4 { order: -2; }
    .swagger-ui .curl-command code { white-space: pre-wrap !important; overflow-wrap: anywhere; }
  }
`);
document.adoptedStyleSheets = [sheet];

// The server says in front of this file whether it has a console.
if (HAS_CONSOLE) {
  const bar = document.createElement('p');
  bar.className = 'to-console';
  const link = document.createElement('a');
  link.href = '/console';
  link.textContent = 'Console: what became of each request';
  bar.append(link);
  document.body.prepend(bar);
}

// As the person's system is, and as it changes.
const dark = matchMedia('(prefers-color-scheme: dark)');
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', follow);
follow();

window.onload = async () => {
  const reply = await fetch('/openapi.json');
  window.ui = SwaggerUIBundle({
    spec: prepare(await reply.json()),
    dom_id: '#swagger-ui',
    // Without the bar in which another document could be opened.
    layout: 'BaseLayout',
    presets: [SwaggerUIBundle.presets.apis],
    plugins: [FreshKeys, KeyOfTab, Stories],
    deepLinking: true,
    docExpansion: 'none',
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    // In localStorage; KeyOfTab does it.
    persistAuthorization: false,
    // The badge would send the document to a server elsewhere.
    validatorUrl: 'none',
  });
  // Where Swagger UI keeps the API key while `persistAuthorization` is on, as it once was.
  localStorage.removeItem('authorized');
  const authorized = JSON.parse(sessionStorage.getItem('authorized') ?? 'null');
  if (authorized) window.ui.authActions.restoreAuthorization({ authorized });
};
