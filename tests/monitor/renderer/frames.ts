// From a panel's queries to the data frames that Grafana's components take.
import {
    FieldType, getDisplayProcessor, standardTransformers, standardTransformersRegistry, ThresholdsMode,
    toDataFrame, transformDataFrame, type DataFrame, type GrafanaTheme2,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import { substitute } from '../queries.mjs';

export interface Settings {
    values: Record<string, string>;
    from: number;
    to: number;
    step: number;
}

// Some are exported under two names.
const known = new Map(Object.values(standardTransformers).map((one: any) => [one.id, one]));
standardTransformersRegistry.setInit(() => [...known.values()].map((transformation) => ({
    id: transformation.id, name: transformation.name, transformation: () => transformation, editor: () => null,
})) as any);

async function ask(path: string, words: Record<string, string | number>) {
    const query = new URLSearchParams(Object.entries(words).map(([key, value]) => [key, String(value)]));
    const answer = await (await fetch(`/prom/api/v1/${path}?${query}`)).json();
    if (answer.status !== 'success') throw new Error(answer.error);
    return answer.data.result;
}

const number = (text: string) => (text === 'NaN' ? null : Number(text));
const named = (legend: string, labels: Record<string, string>) => legend
    ? legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '')
    : Object.values(labels).join(' ');

/** Applies a panel's overrides by name: the only matcher that these dashboards use. */
function configured(panel: any, field: any) {
    const { defaults, overrides } = panel.fieldConfig;
    const config = structuredClone({ ...defaults, ...field.config });
    config.custom = { ...defaults.custom };
    for (const { matcher, properties } of overrides ?? []) {
        if (matcher.options !== (field.config.displayName ?? field.name)) continue;
        for (const { id, value } of properties) {
            if (id.startsWith('custom.')) config.custom[id.slice(7)] = value;
            else config[id] = value;
        }
    }
    config.thresholds = numbered(config.thresholds);
    return config;
}

const numbered = (thresholds: any) => ({
    mode: thresholds?.mode ?? ThresholdsMode.Absolute,
    steps: (thresholds?.steps ?? [{ color: 'green', value: null }])
        .map((step: any) => ({ ...step, value: step.value ?? -Infinity })),
});

function finished(panel: any, frame: DataFrame, place: number, theme: GrafanaTheme2) {
    for (const field of frame.fields as any[]) {
        if (field.type === FieldType.time) continue;
        field.config = configured(panel, field);
        const seen = field.values.filter((value: any) => typeof value === 'number');
        const [min, max] = [Math.min(...seen), Math.max(...seen)];
        const displayName = panel.type === 'table' ? field.config.displayName ?? field.name : undefined;
        field.state = { displayName, seriesIndex: place, range: { min, max, delta: max - min } };
        field.display = getDisplayProcessor({ field, theme });
    }
    return frame;
}

const timed = (target: any, { metric, values }: any) => toDataFrame({
    refId: target.refId,
    fields: [
        { name: 'Time', type: FieldType.time, values: values.map((value: any) => value[0] * 1e3) },
        {
            name: 'Value', type: FieldType.number, labels: metric,
            values: values.map((value: any) => number(value[1])),
            config: { displayNameFromDS: named(target.legendFormat, metric) },
        },
    ],
});

function tabled(target: any, series: any[], alone: boolean) {
    const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))];
    return toDataFrame({
        refId: target.refId,
        fields: [
            { name: 'Time', type: FieldType.time, values: series.map(({ value }) => value[0] * 1e3) },
            ...labels.map((label) => ({
                name: label, type: FieldType.string, values: series.map(({ metric }) => metric[label] ?? ''),
            })),
            {
                name: alone ? 'Value' : `Value #${target.refId}`, type: FieldType.number,
                values: series.map(({ value }) => number(value[1])),
            },
        ],
    });
}

/** Answers of all queries of a panel, as Grafana's data source for Prometheus gives them. */
export async function framesOf(panel: any, settings: Settings, theme: GrafanaTheme2) {
    const { values, from, to, step } = settings;
    const frames: DataFrame[] = [];
    for (const target of panel.targets) {
        const query = substitute(target.expr, values);
        if (target.format === 'table') {
            const series = await ask('query', { query, time: to });
            frames.push(tabled(target, series, panel.targets.length === 1));
        } else if (target.instant) {
            const series = await ask('query', { query, time: to });
            frames.push(...series.map(({ metric, value }: any) => timed(target, { metric, values: [value] })));
        } else {
            const series = await ask('query_range', { query, start: from, end: to, step });
            frames.push(...series.map((one: any) => timed(target, one)));
        }
    }
    const made = panel.transformations
        ? await lastValueFrom(transformDataFrame(panel.transformations, frames))
        : frames;
    return made.map((frame, place) => finished(panel, frame, place, theme));
}
