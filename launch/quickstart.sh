#!/usr/bin/env bash
# The recipe: builds worlds, trains the router from the embedding model in the
# package in three stages, measures it on worlds it never saw, and writes a
# report. What is done is skipped; what was interrupted goes on.
#
#   launch/quickstart.sh [FOLDER]
set -euo pipefail
run=${1:-runs/quickstart}
worlds=$run/worlds

echo "1/3 building the worlds in $worlds"
vhop worlds build --split=main --out="$worlds"

echo '2/3 checking that no two worlds share an object, scene or background'
vhop worlds disjoint "$worlds"/{sft,il,rl}_* "$worlds/dev" "$worlds"/test_*

echo "3/3 training the router in $run and measuring it on three other worlds"
python -m vhop_jax.main --config=configs/experiment.py:quickstart \
  --workdir="$run" --config.worlds="$worlds"
