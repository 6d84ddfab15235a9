#!/usr/bin/env bash
# What can be said about dashboards, rules and runbook without running anything, in half a minute:
# the JSON is up to date, the linter has no complaint, rules and their unit tests pass.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v node >/dev/null || { echo "monitor: SKIPPED: node is not installed"; exit 0; }
node dashboards/generate.mjs --check
node tests/monitor/lint.mjs
node tests/monitor/lint_test.mjs
command -v promtool >/dev/null || { echo "monitor: rules are SKIPPED: promtool is not installed"; exit 0; }
promtool check config configs/prometheus/prometheus.yml >/dev/null
promtool check rules --lint-fatal configs/prometheus/*.rules.yml >/dev/null
promtool test rules tests/monitor/rules/*.test.yml >/dev/null
echo "monitor: dashboards, rules, their tests and the runbook agree"
