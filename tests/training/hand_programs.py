"""Ranges of training loops as people write them, from public programs.

Names, nesting, and the meaning of each name.

A line is a range; deeper lines are inside it. `{i}` counts the repetitions of the line, which is repeated as
often as `*` says. The last word is the meaning: a kind of job, step, or none. `(loop)` is a repetition
without a range."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRange:
    """Range of a program, with the meaning of its name."""

    name: str
    meaning: str
    start: int
    end: int


def parse_program(text: str) -> list[NamedRange]:
    """Lay out the ranges of a program, one after the other."""
    lines = [line for line in text.splitlines() if line.strip()]
    ranges: list[NamedRange] = []
    _lay_out(lines, 0, {}, 0, ranges)
    return ranges


def _lay_out(lines: list[str], at: int, counts: dict[str, int], now: int, ranges: list[NamedRange]) -> int:
    """Lay out lines of one depth and what is inside them; return the end."""
    depth = _depth(lines[at]) if lines else 0
    while at < len(lines):
        until = next((k for k in range(at + 1, len(lines)) if _depth(lines[k]) <= depth), len(lines))
        name, _, meaning = lines[at].strip().rpartition(" = ")
        repeat = 1
        if name.startswith("*"):
            times, _, name = name[1:].partition(" ")
            repeat = int(times)
        for _ in range(repeat):
            number = counts.get(name, 0)
            counts[name] = number + 1
            start, now = now, now + 10
            row = len(ranges)
            if name == "(loop)":
                now = _lay_out(lines[at + 1 : until], 0, counts, now, ranges)
                continue
            filled = name.replace("{i}", str(number)).replace("{r}", str(number % repeat))
            ranges.append(NamedRange(name=filled, meaning=meaning, start=start, end=start))
            if until > at + 1:
                now = _lay_out(lines[at + 1 : until], 0, counts, now, ranges)
            now += 10
            ranges[row] = NamedRange(name=filled, meaning=meaning, start=start, end=now - 1)
        at = until
    return now


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


PROGRAMS = {  # looked at while the rules were written
    "epochs of batches": """
*2 Epoch_{i} = none
  *3 Batch_{i} = step
    Forward_Pass = forward
    Backward_Pass = backward
""",
    "benchmark": """
*4 (loop) = none
  forward_pass = forward
  backward_pass = backward
  optimizer_step = optimizer
""",
    "gradient sync": """
*4 iter_{i} = step
  forward = forward
  backward = backward
  gradient_sync = other
""",
    "padded steps": """
*4 train_step_00{i} = step
  forward = forward
  backward = backward
  optimizer = optimizer
""",
    "transfer": """
*1 Epoch {i} = none
  Training = none
    *3 (loop) = none
      Data_Transfer_to_cuda = data
      Forward Pass = forward
      Backward pass = backward
""",
    "stepped": """
Benchmarking Phase = none
  *3 Step_{i} = step
    Forward Pass = forward
    Backward Pass = backward
    Optimizer Step = optimizer
""",
    "zeroed": """
*3 timed_step = step
  zero_grad = other
  forward = forward
  loss = none
  backward = backward
  optimizer_step = optimizer
""",
    "layers inside": """
*3 (loop) = none
  Forward Pass = forward
    *4 SwiGLU_w2 = none
  Backward Pass = backward
""",
    "iterations": """
*3 Iteration {i} = step
  Data Loading = data
  Forward Pass = forward
  Backward Pass = backward
  Optimizer Step = optimizer
Evaluation = none
""",
    "short": """
*3 Iteration_{i} = step
  Fwd_{i} = forward
  Bwd_{i} = backward
""",
    "overlap": """
*3 Iteration {i} - OVERLAP = step
  Forward Pass = forward
  Backward Pass (with async comm) = backward
  Wait for Communication = none
""",
    "copy": """
*3 Batch{i} = step
  Copy to device = data
  Forward Pass = forward
  Backward Pass = backward
  Optimizer step = optimizer
""",
    "prep": """
Epoch 0 - FP32 = none
  *3 (loop) = none
    Data Prep = data
    Forward Pass = forward
    Backward Pass = backward
    Optimizer Step = optimizer
""",
    "update": """
*3 (loop) = none
  dataload = data
  forward = forward
  backward = backward
  update = optimizer
""",
    "policy": """
*3 (loop) = none
  policy_forward = forward
  loss_computation = none
  backward = backward
  optimizer_step = optimizer
""",
    "timing": """
timing = none
  *3 iter_{i} = step
    forward = forward
    backward = backward
""",
    "step is the optimizer's": """
*3 (loop) = none
  *2 (loop) = none
    Backward Pass = backward
  Step = optimizer
""",
    "schedule functions": """
*3 training_step_{i} = step
  *2 forward_step = forward
  *2 backward_step = backward
  *2 backward_weight_step = weight_gradient
  optimizer_step = optimizer
""",
    "letters": """
*3 {i} = step
  *2 F{r} = forward
  *2 B{r} = backward
  *2 W{r} = weight_gradient
""",
    "numbered": """
*3 step_{i} = step
  *2 forward_{r} = forward
  *2 backward_{r} = backward
  *2 weight_grad_{r} = weight_gradient
  optimizer_step = optimizer
""",
    "training loop": """
Training Loop = none
  *3 Iteration {i} = step
    Forward Pass = forward
    Compute Loss = none
    Backward Pass = backward
    Optimizer Step = optimizer
""",
    "bare": """
*2 epoch = none
  *3 (loop) = none
    forward = forward
    backward = backward
    optimizer = optimizer
""",
    "ptycho": """
*3 step = step
  copy in = none
  forward = forward
  optimizer = optimizer
""",
    "prefix suffix": """
*3 (loop) = none
  Model Predict Suffix = none
  Loss Backward = backward
  Optimizer Step = optimizer
""",
    "profiled": """
*3 profiled_step = step
  forward = forward
  loss = none
  backward = backward
  optimizer_step = optimizer
""",
    "tasks": """
Task 0 = none
  *2 Epoch {i} = none
    Train = none
      *3 (loop) = none
        Forward pass = forward
        Optimizer step = optimizer
    Validate = none
""",
    "monai": """
*2 epoch_{i} = none
  training = none
  *3 training_step = step
    wait_for_batch = data
    forward = forward
    backward = backward
""",
    "ddp script": """
*2 epoch-{i} = none
  *3 (loop) = none
    data-to-gpu = data
    batch = step
      forward = forward
      backward = backward
      optimizer = optimizer
""",
    "resnext": """
training resnext half precision = none
  *2 epoch {i} = none
    *3 epoch 0 - step {r} = step
      data copy = data
      zero grad = other
      forward = forward
      backward = backward
""",
    "mnist": """
*3 Batch {i} = step
  Load Data = data
  Forward = forward
  Calculate Loss/Sync = none
  Backward = backward
  SGD = optimizer
""",
    "language model": """
*3 (loop) = none
  batch-generator = data
  language_model forward = forward
  backward = backward
""",
    "chemistry": """
*3 batch{i} = step
  backward = backward
  optimizer step = optimizer
""",
    "gradient accumulation": """
*2 iteration {i} = step
  *4 (loop) = none
    forward = forward
    backward = backward
  optimizer = optimizer
""",
    "layers alone": """
*3 (loop) = none
  *2 layer_{r} = none
    attn forward = none
    mlp forward = none
""",
    "layers named": """
*2 Iteration {i} = step
  model forward = forward
    *4 layer_{r} = none
      forward = none
  backward = backward
""",
    "inference": """
*5 poolformer_forward = none
find_centers = none
""",
    "serving": """
*5 forward = none
sample = none
""",
    "eval only": """
*4 eval_step = none
  forward = none
""",
    "loss": """
*4 (loop) = none
  forward_pass = forward
  loss_computation = none
  backward_pass = backward
  zero_grad = other
""",
    "both at once": """
*4 Forward + Backward Pass = forward_backward
""",
    "copies": """
*3 step_{i} = step
  data_load = data
  h2d_copy = data
  forward = forward
  loss = none
  backward = backward
  optimizer_step = optimizer
""",
    "validation": """
*3 Train_Step_{i} = step
  H2D_Transfer = data
  Forward_Pass = forward
    Loss_Calculation = none
  Backward_Pass = backward
  Optimizer_Step = optimizer
Validation_Epoch = none
  *2 Val_Step_{i} = none
    Val_H2D_Transfer = none
Save_Checkpoint = none
""",
    "capitals": """
*4 (loop) = none
  FWD = forward
  BWD = backward
""",
    "kernels of a layer": """
*3 iter_{i} = none
  fwd_gather_quant = none
  fwd_gemm1 = none
  fwd_swiglu_quant_zsave = none
""",
    "function": """
*3 fwd_bwd_func = forward_backward
""",
    "rounds": """
*3 Fwd+Bwd = forward_backward
  *2 Round {i} = none
    Prepare Training Chunks = none
""",
    "scheduler": """
*4 (loop) = none
  zero grad = other
  Backward = backward
  optimizer step = optimizer
  schduler step = none
""",
    "lower case": """
*4 (loop) = none
  forward pass = forward
  backward pass = backward
  optimizer step = optimizer
""",
    "energies": """
*4 (loop) = none
  NN forward = forward
  Backward = backward
""",
    "zero": """
*4 (loop) = none
  copy = data
  forward = forward
  loss = none
  zero = other
  backward = backward
  optimizer = optimizer
""",
    "label and number": """
*4 torch training resnet, iter {i} = step
  forward = forward
  backward = backward
""",
    "joined": """
*4 (loop) = none
  forward + loss = forward
  backward = backward
  optimizer step = optimizer
""",
    "bare step": """
*4 train_step = step
  forward = forward
  backward = backward
""",
    "accumulation": """
*3 train_step = step
  *2 (loop) = none
    data_fetch = data
    forward_backward = forward_backward
  optimizer_step = optimizer
""",
    "loader": """
*4 (loop) = none
  loader = data
  train_step = step
""",
    "step around all": """
train_step = none
  *9 (loop) = none
    forward = forward
    backward = backward
""",
    "loaded": """
*4 (loop) = none
  data_load = data
  forward_backward = forward_backward
""",
    "flow matching": """
*4 (loop) = none
  prepare_batch = data
    codec_encode = none
    sample_timestep = none
  train_step = step
    forward = forward
    backward = backward
""",
    "mini-batches": """
*4 MiniBatch {i} = step
  Softmax = none
  Backpropagation = backward
  Optimizer = optimizer
""",
    "misspelt": """
*4 MiniBatch {i} = step
  Forward = forward
  Conmpute Loss = none
  Backpropagation = backward
  Optimizer = optimizer
""",
    "backward alone": """
*4 BACKPROP = backward
""",
    "slides": """
*4 (loop) = none
  forward pass = forward
  backprop = backward
""",
    "training is the forward": """
*4 (loop) = none
  Data to CUDA = data
  Training = forward
  Backward Pass = backward
""",
    "train": """
*4 train = step
""",
    "messages": """
*4 (loop) = none
  forward = forward
  backward = backward
  p2p_send = send
""",
    "direct": """
fwd_direct = none
""",
    "recurrent": """
*4 (loop) = none
  fwd setup = none
  ifgo = none
""",
    "poisson": """
*4 (loop) = none
  1st fffw_plan = none
  forwardDST = none
  Middle stuff = none
""",
    "linear algebra": """
*4 LU Decomposition = none
*4 H_sim Computation = none
  Forward-Backward Substitution = none
""",
    "epochs": """
ModelTraining = none
  *4 Epoch_{i} = step
    Forward = forward
    Backward = backward
""",
    "segmentation": """
*4 (loop) = none
  forward = none
  *2 post-process = none
""",
    "next batch": """
*4 (loop) = none
  Get next batch = data
  Forward pass = forward
  Backward pass = backward
""",
    "batches": """
*4 batch {i} = step
  forward = forward
  backward = backward
""",
    "numbers of batches": """
*4 (loop) = none
  copy data {i} = data
  forward {i} = forward
  backward {i} = backward
""",
    "copy in": """
*4 step {i} = step
  data copy in {i} = data
  forward = forward
  optimizer = optimizer
""",
    "steps alone": """
*4 step {i} = step
""",
    "graph": """
*4 step {i} = step
  data copy in {i} = data
""",
    "cs336": """
*4 Step {i} = step
  Forward = forward
  Backward = backward
""",
    "record_function": """
*4 (loop) = none
  data_transfer, op_id = 1{i} = data
  forward, op_id = 2{i} = forward
  backward, op_id = 3{i} = backward
  optimizer_step, op_id = 4{i} = optimizer
""",
    "calculation": """
*4 (loop) = none
  forward_pass = forward
  loss_calculation = none
  backward_pass = backward
  optimizer_step = optimizer
""",
    "loss is the forward": """
*4 (loop) = none
  loss = forward
  backward = backward
  optimizer_step = optimizer
""",
    "losses": """
*4 (loop) = none
  compute_losses = none
  backward = backward
  optimizer_step = optimizer
""",
    "inference is the forward": """
*4 (loop) = none
  model_inference = forward
  model_backward = backward
  optimizer_step = optimizer
""",
    "device": """
*4 (loop) = none
  data_to_device = data
  forward = forward
  backward = backward
  optimizer_step = optimizer
""",
}
