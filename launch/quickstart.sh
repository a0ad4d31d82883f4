#!/usr/bin/env bash
# The recipe: builds worlds, trains the router from the embedding model in the
# package, measures it on worlds it never saw, and writes a report. What is
# done is skipped; what was interrupted goes on.
#
#   launch/quickstart.sh [FOLDER]
set -euo pipefail
run=${1:-runs/quickstart}
worlds=$run/worlds

echo "1/4 building the worlds in $worlds"
vhop worlds build-splits --out="$worlds"

echo '2/4 checking that no training world shares an object with the others'
vhop worlds disjoint "$worlds"/sft_* "$worlds/dev" "$worlds"/test_*

echo "3/4 training the router in $run/sft"
python -m vhop_jax.main --config=configs/sft.py --workdir="$run/sft" \
  --config.worlds="$worlds/sft_*" --config.dev="$worlds/dev"

echo '4/4 measuring it on three worlds it never saw'
python -m vhop_jax.main --config=configs/evaluate.py --workdir="$run" \
  --config.router="$run/sft/router.safetensors" --config.training="$run/sft" \
  --config.dev="$worlds/dev" \
  --config.test="('$worlds/test_w1','$worlds/test_w2','$worlds/test_w3')"
