// Draws one dashboard, named in the address, with the components that Grafana publishes. Only the
// heatmap is our own: Grafana does not publish its one.
import React, { useEffect, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext, type DataFrame } from '@grafana/data';
import {
    BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, PanelChrome, PortalContainer, TimeSeries,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import * as i18n from '@grafana/i18n';
import { framesOf, type Settings } from './frames';

const theme = createTheme({ colors: { mode: 'dark' } });
const [WIDTH, CELL, GAP] = [1600, 38, 8];
const state = window as any;
Object.assign(state, { __done: 0, __total: -1, __errors: [] as string[] });

const seconds = getDisplayProcessor({ field: { config: { unit: 's', decimals: 0 }, type: FieldType.number } as any, theme });

interface Buckets { bounds: number[]; times: number[]; counts: number[][] }

/** From cumulative buckets to counts of each, without the rows at both ends that are empty. */
function buckets(frames: DataFrame[]): Buckets {
    const sorted = frames.map((frame) => ({
        bound: Number(frame.fields[1].labels?.le?.replace('+Inf', 'Infinity')),
        values: frame.fields[1].values as number[],
    })).filter(({ bound }) => Number.isFinite(bound)).sort((a, b) => a.bound - b.bound);
    const counts = sorted.map(({ values }, row) => values.map((value, column) =>
        Math.max(0, (value ?? 0) - (row ? sorted[row - 1].values[column] ?? 0 : 0))));
    const filled = counts.map((row) => row.some((count) => count > 0.5));
    const [first, last] = [filled.indexOf(true), filled.lastIndexOf(true) + 1];
    return {
        bounds: sorted.map(({ bound }) => bound).slice(first, last),
        times: frames[0].fields[0].values as number[],
        counts: counts.slice(first, last),
    };
}

function drawHeat(canvas: HTMLCanvasElement, { bounds, times, counts }: Buckets) {
    const [w, h, left, bottom] = [canvas.width, canvas.height, 64, 22];
    const pen = canvas.getContext('2d')!;
    pen.clearRect(0, 0, w, h);
    pen.font = '11px sans-serif';
    const most = Math.max(...counts.flat());
    const [cw, ch] = [(w - left) / times.length, (h - bottom) / bounds.length];
    counts.forEach((row, y) => row.forEach((count, x) => {
        if (count < 0.5) return;
        const heat = Math.sqrt(count / most);
        pen.fillStyle = `hsl(${240 - 220 * heat}, 85%, ${30 + 28 * heat}%)`;
        pen.fillRect(left + x * cw, h - bottom - (y + 1) * ch, cw + 0.5, ch + 0.5);
    }));
    pen.fillStyle = '#ccccdc';
    bounds.forEach((bound, y) => {
        if (y % Math.ceil(bounds.length / 9)) return;
        const { text, suffix } = seconds(bound);
        pen.fillText(`${text}${suffix ?? ''}`, 2, h - bottom - (y + 1) * ch + 10);
    });
    for (let tick = 0; tick < 5; tick += 1) {
        const at = Math.floor((tick + 0.5) * times.length / 5);
        pen.fillText(new Date(times[at]).toISOString().slice(11, 19), left + at * cw - 22, h - 6);
    }
}

function Heat({ frames, width, height }: any) {
    const canvas = useRef<HTMLCanvasElement>(null);
    useEffect(() => drawHeat(canvas.current!, buckets(frames)), [frames]);
    return <canvas ref={canvas} width={width} height={height} />;
}

function Stat({ panel, frames, width, height }: any) {
    const [x, y] = frames[0].fields;
    const last = [...y.values].reverse().find((value: any) => value !== null);
    const sparkline = panel.options.graphMode === 'area' ? { x, y: { ...y, config: { ...y.config, min: undefined } } } : undefined;
    return <BigValue value={{ ...y.display(last), title: '' }} width={width} height={height} theme={theme}
        colorMode={panel.options.colorMode as BigValueColorMode} textMode={BigValueTextMode.Value}
        graphMode={sparkline ? BigValueGraphMode.Area : BigValueGraphMode.None} sparkline={sparkline} />;
}

function Graph({ panel, frames, width, height, settings }: any) {
    const [from, to] = [dateTime(settings.from * 1e3), dateTime(settings.to * 1e3)];
    return <TimeSeries frames={frames} width={width} height={height} timeZone="utc"
        timeRange={{ from, to, raw: { from, to } }} legend={panel.options.legend} />;
}

function Content({ panel, frames, width, height, settings }: any) {
    if (!frames.length || !frames.some((frame: DataFrame) => frame.length)) {
        return <div style={{ color: theme.colors.text.secondary, textAlign: 'center', paddingTop: height / 2 - 10 }}>No data</div>;
    }
    switch (panel.type) {
        case 'stat': return <Stat {...{ panel, frames, width, height }} />;
        case 'heatmap': return <Heat {...{ frames, width, height }} />;
        case 'table': return <TableNG data={frames[0]} width={width} height={height} sortBy={panel.options.sortBy} cellHeight={panel.options.cellHeight} />;
        case 'timeseries': return <Graph {...{ panel, frames, width, height, settings }} />;
        default: throw new Error(`no component for a panel of type ${panel.type}`);
    }
}

function Panel({ panel, settings }: { panel: any; settings: Settings }) {
    const [answer, answered] = useState<any>();
    useEffect(() => {
        framesOf(panel, settings, theme)
            .then((frames) => answered({ frames }), (error) => {
                state.__errors.push(`${panel.title}: ${error.message ?? error}`);
                answered({ error: String(error) });
            })
            .finally(() => { state.__done += 1; });
    }, []);
    const { x, y, w, h } = panel.gridPos;
    const [width, height] = [w * WIDTH / 24 - GAP, h * CELL - GAP];
    return <div data-panel={panel.title} style={{ position: 'absolute', left: x * WIDTH / 24, top: y * CELL, width, height }}>
        <PanelChrome title={panel.title} description={panel.description} width={width} height={height} statusMessage={answer?.error}>
            {(innerWidth: number, innerHeight: number) => answer?.frames
                ? <Content panel={panel} frames={answer.frames} width={innerWidth} height={innerHeight} settings={settings} />
                : <></>}
        </PanelChrome>
    </div>;
}

const Heading = ({ row }: any) =>
    <div style={{ position: 'absolute', left: 4, top: row.gridPos.y * CELL + 6, fontSize: 16, fontWeight: 500 }}>{row.title}</div>;

function Dashboard({ dashboard, settings }: any) {
    const height = Math.max(...dashboard.panels.map(({ gridPos }: any) => gridPos.y + gridPos.h)) * CELL;
    return <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <PortalContainer />
        <h3 style={{ margin: '12px 16px' }}>{dashboard.title}</h3>
        <div style={{ position: 'relative', margin: 8, width: WIDTH, height }}>
            {dashboard.panels.map((panel: any) => panel.type === 'row'
                ? <Heading key={panel.id} row={panel} />
                : <Panel key={panel.id} panel={panel} settings={settings} />)}
        </div>
    </ThemeContext.Provider>;
}

const asked = new URLSearchParams(location.search);
const json = async (path: string) => (await fetch(path)).json();
await (i18n as any).initPluginTranslations?.('tapecast', []);
const dashboard = await json(`/dashboards/${asked.get('dashboard')}.json`);
const settings = await json('/settings.json');
state.__total = dashboard.panels.filter((panel: any) => panel.type !== 'row').length;
createRoot(document.getElementById('root')!).render(<Dashboard dashboard={dashboard} settings={settings} />);
