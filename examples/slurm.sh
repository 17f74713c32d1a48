#!/bin/bash
#SBATCH --job-name=pahs
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --requeue
# One segment of a plan for each task of an array, then a job that joins them. On the login node:
#
#   pahs plan film.mp4 -o sharp --device cuda
#   last=$(($(pahs run sharp/plan.jsonl --count) - 1))
#   array=$(sbatch --parsable --array=0-$last examples/slurm.sh sharp/plan.jsonl)
#   sbatch --dependency=afterok:$array examples/slurm.sh sharp/plan.jsonl join
#
# A task that runs again finds its result and ends at once. The folder must be one that all nodes see.
set -euo pipefail
if [ "${2:-}" = join ]; then
    pahs run "$1" --join
else
    pahs run "$1" --segment "$SLURM_ARRAY_TASK_ID"
fi
