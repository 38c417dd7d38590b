#!/bin/bash
# A run on several machines under Slurm: sbatch examples/cluster/slurm.sh run.yaml [key=value ...]
#SBATCH --job-name=rlinf
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
# The driver gets SIGTERM five minutes before the end and saves; `--requeue` starts the same command, which resumes.
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
set -euo pipefail

# The environment that has rlinf, on a disk that all machines share.
# shellcheck source=/dev/null
source "${RLINF_VENV:?set RLINF_VENV to the folder of the virtual environment}/bin/activate"

mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
port=$((10000 + SLURM_JOB_ID % 20000)) # two jobs may share the first machine's network

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    ray start --head --node-ip-address="$address" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
if (( ${#machines[@]} > 1 )); then
    srun --nodes=$(( ${#machines[@]} - 1 )) --ntasks-per-node=1 --exclude="$head" --overlap \
        ray start --address="$address:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
fi

# Wait until all machines have joined.
for _ in $(seq 60); do
    joined=$(srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
        python -c "import ray; ray.init('$address:$port', log_to_driver=False, logging_level='ERROR'); print(len(ray.nodes()))" || echo 0)
    [ "$joined" = "${#machines[@]}" ] && break
    sleep 5
done

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    rlinf train "$@" cluster.address="$address:$port" &
driver=$!
trap 'kill -TERM $driver' TERM
wait $driver || wait $driver
