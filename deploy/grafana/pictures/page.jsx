// The dashboard as a page: Grafana's own panels, with what Prometheus answers to their queries.

import { createRoot } from 'react-dom/client';
import {
  FieldType,
  createTheme,
  dateTime,
  getDisplayProcessor,
  toDataFrame,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui';

// Grafana's grid: 24 columns, and rows of 30 pixels with 8 between them.
const COLUMNS = 24;
const ROW = 30;
const GAP = 8;
const WIDTH = 1600;
// What is inside a panel's border.
const PADDING = 8;

const theme = createTheme({ colors: { mode: 'light' } });
const timeZone = 'utc';

// `query` with the dashboard's variables, for a step of so many seconds.
function expression(query, step) {
  const variables = { $__rate_interval: `${4 * step}s`, $job: 'charge-once', $instance: '.*' };
  return Object.entries(variables).reduce(
    (text, [name, value]) => text.replaceAll(name, value),
    query,
  );
}

async function ask(prometheus, path, parameters) {
  const reply = await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const { status, data, error } = await reply.json();
  if (status !== 'success') {
    throw new Error(`${parameters.query}: ${error}`);
  }
  return data.result;
}

// What one query of a panel returned, as Grafana's frames.
async function frames(panel, target, { prometheus, from, to, step }) {
  const query = expression(target.expr, step);
  const results = target.instant
    ? (await ask(prometheus, 'query', { query, time: to })).map(({ metric, value }) => ({
        metric,
        values: [value],
      }))
    : await ask(prometheus, 'query_range', { query, start: from, end: to, step });
  return results.map(({ metric, values }) => {
    const name = (target.legendFormat || 'Value').replace(
      /\{\{\s*(\w+)\s*\}\}/g,
      (_, label) => metric[label] ?? '',
    );
    const known = new Map(values.map(([time, value]) => [time, Number(value)]));
    const times = target.instant ? [to] : seconds(from, to, step);
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
        {
          name,
          type: FieldType.number,
          // A time without a sample is a gap in the line.
          values: times.map((time) => known.get(time) ?? null),
          config: { ...panel.fieldConfig.defaults, displayName: name },
        },
      ],
    });
  });
}

function seconds(from, to, step) {
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => from + n * step);
}

async function series(panel, settings) {
  const found = await Promise.all(panel.targets.map((target) => frames(panel, target, settings)));
  const all = found.flat();
  all.forEach((frame, seriesIndex) => {
    for (const field of frame.fields) {
      field.config.color ??= { mode: panel.type === 'stat' ? 'thresholds' : 'palette-classic' };
      field.state = { seriesIndex };
      field.display = getDisplayProcessor({ field, theme, timeZone });
    }
  });
  return all;
}

function Stat({ panel, data, width, height }) {
  const field = data[0]?.fields[1];
  const value = field ? field.display(field.values[0]) : { text: 'No data', numeric: NaN };
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  const look = { colorMode, graphMode, justifyMode, textMode };
  return <BigValue theme={theme} width={width} height={height} value={value} {...look} />;
}

function Lines({ panel, data, width, height, settings: { from, to } }) {
  const [start, end] = [dateTime(from * 1000), dateTime(to * 1000)];
  const timeRange = { from: start, to: end, raw: { from: start, to: end } };
  return (
    <TimeSeries
      frames={data}
      legend={{ calcs: [], ...panel.options.legend }}
      {...{ width, height, timeRange, timeZone }}
    />
  );
}

function Panel({ panel, data, settings }) {
  const column = (WIDTH - GAP) / COLUMNS;
  const { x, y, w, h } = panel.gridPos;
  const [width, height] = [w * column - GAP, h * (ROW + GAP) - GAP];
  const place = {
    position: 'absolute',
    left: GAP + x * column,
    top: GAP + (y - settings.top) * (ROW + GAP),
    width,
    height,
  };
  if (panel.type === 'row') {
    return <h4 style={{ ...place, lineHeight: `${ROW}px` }}>{panel.title}</h4>;
  }
  const Content = { stat: Stat, timeseries: Lines }[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={panel.title} {...{ width, height }} padding="none">
        {(innerWidth, innerHeight) => (
          <div style={{ padding: PADDING }}>
            <Content
              width={innerWidth - 2 * PADDING}
              height={innerHeight - 2 * PADDING}
              {...{ panel, data, settings }}
            />
          </div>
        )}
      </PanelChrome>
    </div>
  );
}

// Draws these panels of a dashboard, and returns the size of the picture.
window.draw = async (panels, settings) => {
  const top = Math.min(...panels.map((panel) => panel.gridPos.y));
  const bottom = Math.max(...panels.map(({ gridPos: { y, h } }) => y + h));
  const drawn = await Promise.all(
    panels.map(async (panel) => ({
      panel,
      data: panel.type === 'row' ? [] : await series(panel, settings),
    })),
  );
  const root = document.createElement('div');
  document.body.replaceChildren(root);
  createRoot(root).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {drawn.map(({ panel, data }) => (
        <Panel key={panel.id} settings={{ ...settings, top }} {...{ panel, data }} />
      ))}
    </ThemeContext.Provider>,
  );
  return { width: WIDTH, height: GAP + (bottom - top) * (ROW + GAP) };
};
