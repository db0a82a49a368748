// The vocabulary of pipeline schedules: an action, a schedule (the compute actions of each rank in
// order) and the lowered action (compute and transfers) that the executor runs.
//
// Letters: p pipeline ranks, m micro-batches, v chunks per rank. A stage is one of p*v consecutive
// parts of the model; a rank holds v of them, its chunks, numbered 0 ... v-1 in stage order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// A full `backward` is backward_input and backward_weight at once.
enum class Kind : uint8_t { forward, backward, backward_input, backward_weight };

// The letter of the CSV form that PyTorch's pipelining reads and writes: F, B, I, W.
char letter(Kind kind);

struct Action {
  Kind kind = Kind::forward;
  int stage = 0;
  int microbatch = 0;
  // A forward in one cell with the full backward after it, of which a device with room for both may
  // run parts side by side: the two begin when the inputs of both are there, and what they make is
  // there when both are done.
  bool fused = false;

  bool operator==(const Action&) const = default;
};

// "0F4": stage 0, forward, micro-batch 4 (a fused one too).
std::string to_string(const Action& action);
// Appends the cells of a rank's list as CSV has them: "0F4", "(0F4;7B3)OVERLAP_F_B".
void append_cells(std::string& text, const std::vector<Action>& actions,
                  std::string_view separator);

// When the weights of a stage change.
enum class Updates : uint8_t {
  at_flush,         // once, by the gradients of all micro-batches
  each_microbatch,  // after each backward (PipeDream); forwards meanwhile use what there is
  one_batch_late,   // once, by the gradients of all, but used one iteration later (PipeDream-2BW)
};

// What each rank computes, in order. Data only: made by schedules.h, checked by validate.h, run by
// execute.h.
struct Schedule {
  std::string kind;                         // "1f1b", ... as in schedules.h
  int stages = 1;                           // pipeline ranks p (the interface's --stages)
  int microbatches = 1;                     // m
  int chunks = 1;                           // v, stages held by each rank
  std::vector<std::vector<int>> placement;  // [p][v] stage of each chunk of each rank
  std::vector<std::vector<Action>> ranks;   // [p] actions in order
  Updates updates = Updates::at_flush;

  int total_stages() const { return stages * chunks; }
  bool asynchronous() const { return updates != Updates::at_flush; }
  // The rank that holds `stage`. Error if none does.
  int rank_of_stage(int stage) const;
};

// stage of chunk c on rank r = c*p + r.
std::vector<std::vector<int>> looped_placement(int stages, int chunks);

// The steps of the lowered list of one rank.
enum class Step : uint8_t {
  compute,                // runs `kind`
  post_receive_forward,   // opens the receive of the activation that enters `stage`
  wait_receive_forward,   // waits until it is there
  send_forward,           // sends the activation that leaves `stage`; never waits for the peer
  post_receive_backward,  // the same for the gradient of the activation that leaves `stage`
  wait_receive_backward,
  send_backward,  // sends the gradient of the activation that enters `stage`
};

bool is_send(Step step);

struct LoweredAction {
  Step step = Step::compute;
  Kind kind = Kind::forward;  // of the compute; for a transfer that of the compute it serves
  int stage = 0;  // a stage of this rank: the receiver's for receives, else the sender's
  int chunk = 0;  // the same stage as chunk number of this rank
  int microbatch = 0;
  int peer = -1;       // rank at the other end, -1 for a compute
  bool fused = false;  // of a compute, as Action's

  bool operator==(const LoweredAction&) const = default;
};

// "0F4", "post receive for 1F4 from rank 0", "send of 0F4 to rank 1", ...
std::string to_string(const LoweredAction& action);

// A number that names a transfer among all those between two ranks: the same at both ends,
// different for every (direction, stage, micro-batch). In [0, 2 * total_stages * m). Computes have
// none (-1).
int transfer_tag(const LoweredAction& action, int microbatches);

}  // namespace trident
