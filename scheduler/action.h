// The vocabulary of pipeline schedules: the action, the schedule (the compute actions of each rank
// in order) and the lowered action (a compute or a transfer), which the executor runs. Plain data
// without shared state.
//
// Letters: p pipeline ranks, m micro-batches, v chunks per rank. A stage is one of p*v consecutive
// parts of the model. A rank holds v stages, its chunks, numbered 0 ... v-1 in stage order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

// `backward` is a full backward: backward_input and backward_weight in one action.
enum class Kind : uint8_t { forward, backward, backward_input, backward_weight };

// The letter of the kind in the CSV form that PyTorch's pipelining reads and writes: F, B, I, W.
char letter(Kind kind);

struct Action {
  Kind kind = Kind::forward;
  int stage = 0;
  int microbatch = 0;
  // A fused forward shares a cell with the full backward after it. A device with enough resources
  // may overlap parts of the two. Both begin when the inputs of both have arrived, and their
  // outputs are available when both are done.
  bool fused = false;

  bool operator==(const Action&) const = default;
};

// "0F4" is stage 0, forward, micro-batch 4. A fused action has the same text.
std::string to_string(const Action& action);
// Appends the cells of a rank's list in CSV form: "0F4", "(0F4;7B3)OVERLAP_F_B".
void append_cells(std::string& text, const std::vector<Action>& actions,
                  std::string_view separator);

// When the weights of a stage are updated.
enum class Updates : uint8_t {
  at_flush,         // once, with the gradients of all micro-batches
  each_microbatch,  // after each backward (PipeDream); a forward uses the current weights
  one_batch_late,   // once, with all gradients, but first used an iteration later (PipeDream-2BW)
};

// The compute actions of each rank, in order. It is plain data: schedules.h makes it, validate.h
// checks it, execute.h runs it.
struct Schedule {
  std::string kind;                         // the schedule's name, as in schedules.h: "1f1b", ...
  int stages = 1;                           // p, the number of pipeline ranks (--stages on the
                                            // command line)
  int microbatches = 1;                     // m
  int chunks = 1;                           // v, the number of stages on each rank
  std::vector<std::vector<int>> placement;  // [p][v] the stage of each chunk of each rank
  std::vector<std::vector<Action>> ranks;   // [p] the actions of each rank in order
  Updates updates = Updates::at_flush;

  int total_stages() const { return stages * chunks; }
  bool asynchronous() const { return updates != Updates::at_flush; }
  // The rank that holds `stage`. Throws Error if no rank holds it.
  int rank_of_stage(int stage) const;
};

// The placement in which chunk c of rank r is stage c*p + r.
std::vector<std::vector<int>> looped_placement(int stages, int chunks);

// The kinds of entries in the lowered list of one rank.
enum class Step : uint8_t {
  compute,                // runs `kind`
  post_receive_forward,   // posts the receive of the activation that enters `stage`
  wait_receive_forward,   // waits until that activation has arrived
  send_forward,           // sends the activation that leaves `stage`; never waits for the peer
  post_receive_backward,  // posts the receive of the gradient of the activation that leaves `stage`
  wait_receive_backward,
  send_backward,  // sends the gradient of the activation that enters `stage`
};

bool is_send(Step step);

struct LoweredAction {
  Step step = Step::compute;
  Kind kind = Kind::forward;  // of the compute; a transfer has the kind of the compute that it
                              // serves
  int stage = 0;  // a stage of this rank: the receiving stage of a receive, else the sending stage
  int chunk = 0;  // the number of that stage among this rank's chunks
  int microbatch = 0;
  int peer = -1;       // the rank at the other end, -1 for a compute
  bool fused = false;  // as Action::fused; false for a transfer

  bool operator==(const LoweredAction&) const = default;
};

// "0F4", "post receive for 1F4 from rank 0", "send of 0F4 to rank 1", ...
std::string to_string(const LoweredAction& action);

// A number that identifies a transfer among all transfers between two ranks. Both ends compute the
// same number, and each (direction, stage, micro-batch) has its own. It is in [0, 2 * total_stages
// * m). A compute has the number -1.
int transfer_tag(const LoweredAction& action, int microbatches);

}  // namespace trident
