// What the checks and the renderer know about dashboards: their queries, variables and metrics.

/** Panels, those in rows included, without the rows themselves. */
export const panelsOf = (dashboard) =>
    dashboard.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])])
        .filter((panel) => panel.type !== 'row');

const VARIABLE = /\$(?:\{(\w+)(?::\w+)?\}|(\w+))|\[\[(\w+)\]\]/g;

/** Names of the variables in a text. */
export const variablesIn = (text) =>
    [...text.matchAll(VARIABLE)].map((found) => found[1] ?? found[2] ?? found[3]);

/** The text with variables replaced; one that has no value is an error. */
export const substitute = (text, values) => text.replace(VARIABLE, (whole, ...names) => {
    const name = names.slice(0, 3).find(Boolean);
    if (!(name in values)) throw new Error(`undefined variable ${whole}`);
    return values[name];
});

/** What Grafana gives by itself, for a window of so many seconds at a scrape each second. */
export const builtIn = (seconds) => ({
    __rate_interval: '4s', __interval: '1s', __range: `${seconds}s`, __range_s: String(seconds),
});

const KEYWORDS = new Set(`and or unless by without on ignoring group_left group_right offset bool end
    start inf nan atan2 sum min max avg count topk bottomk quantile stddev group`.split(/\s+/));

/** Names of the metrics that an expression reads. */
export function metricsIn(expr) {
    const bare = expr
        .replace(/"(?:[^"\\]|\\.)*"/g, '')
        .replace(/\{[^}]*\}/g, ' ')
        .replace(/\[[^\]]*\]/g, ' ')
        .replace(/\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, ' ');
    const names = [...bare.matchAll(/[a-zA-Z_:][\w:]*(?!\w)(\s*\()?/g)]
        .filter((found) => !found[1] && !/[\d.$]/.test(bare[found.index - 1] ?? ''))
        .map((found) => found[0].trim());
    return [...new Set(names.filter((name) => !KEYWORDS.has(name.toLowerCase())))];
}

/** Each query of a dashboard: `{ where, expr, target, panel }`. */
export function queriesOf(dashboard) {
    const ofPanels = panelsOf(dashboard).flatMap((panel) => (panel.targets ?? []).map((target) => ({
        where: `${dashboard.title}: ${panel.title}: ${target.refId}`, expr: target.expr, target, panel,
    })));
    const notes = (dashboard.annotations?.list ?? []).filter((note) => note.expr)
        .map((note) => ({ where: `${dashboard.title}: annotation ${note.name}`, expr: note.expr }));
    return [...ofPanels, ...notes];
}

/** Alerts and recordings of a rules file, read as the YAML that this folder's rules keep to. */
export function rulesIn(text) {
    const rules = [];
    for (const raw of text.split('\n')) {
        const begin = raw.match(/^ {6}- (alert|record): (\S+)$/);
        if (begin) rules.push({ kind: begin[1], name: begin[2], text: '' });
        else if (rules.length && !/^\s*#/.test(raw)) rules.at(-1).text += `${raw}\n`;
    }
    return rules.map((rule) => {
        const expr = rule.text.match(/^ {8}expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)/m);
        if (!expr) throw new Error(`${rule.name} has no expr that can be read`);
        return { ...rule, expr: (expr[1] ?? expr[2]).replace(/\s+/g, ' ').trim() };
    });
}

/** Whether a metric is absent in a run: a list of patterns, one a line. */
export function absentWith(text) {
    const patterns = text.split('\n').filter((row) => row && !row.startsWith('#'))
        .map((row) => new RegExp(`^(?:${row})$`));
    return (name) => patterns.some((pattern) => pattern.test(name));
}
