#include "engine/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "scheduler/execute.h"

namespace trident {

Evaluator::Evaluator(RankModel& model, const Schedule& schedule)
    : Evaluator(model, std::make_shared<RunLists>(schedule, 1)) {}

Evaluator::Evaluator(RankModel& model, std::shared_ptr<const RunLists> lists)
    : model_(model),
      lists_(std::move(lists)),
      list_(lower_rank(lists_->forward, model.topology().place(Group::pipeline))),
      runner_(model.make_runner(2)) {}  // after the two channels of a Stepper

void Evaluator::need_finished_step(const char* what) const {
  if (!model_.provisional()) return;
  throw Error(
      fmt::format("Evaluator::{}: the last update may still be rolled back; call "
                  "Stepper::wait_for_result() first",
                  what));
}

Tensor Evaluator::run(const std::vector<HostMicroBatch>& batches) {
  runner_->begin(model_.upload(batches, false), nullptr);
  ExecutionTrace trace;
  std::size_t done = 0;
  for (int end = lists_->window; done < list_.size(); end += lists_->window) {
    // Bounds the messages in flight: without backwards, a rank would run ahead of the next ranks
    // and keep its sent messages.
    runner_->deliver();
    const auto next = std::find_if(
        list_.begin() + static_cast<std::ptrdiff_t>(done), list_.end(),
        [&](const LoweredAction& a) { return a.step == Step::compute && a.microbatch >= end; });
    const auto until = static_cast<std::size_t>(next - list_.begin());
    execute(list_, done, until, *runner_, trace);
    done = until;
  }
  return runner_->finish();
}

double counted_tokens(const std::vector<HostMicroBatch>& batches, double all) {
  double counted = 0;
  for (const HostMicroBatch& batch : batches) {
    if (batch.counted < 0) return all;
    counted += static_cast<double>(batch.counted);
  }
  return counted;
}

std::optional<double> Evaluator::mean_loss(const std::vector<HostMicroBatch>& batches,
                                           const std::atomic<bool>* stop) {
  need_finished_step("mean_loss");
  Context& context = model_.context();
  const Tensor losses = run(batches);
  const double local[]{losses ? sum_on_host(context, losses) : 0,
                       stop != nullptr && stop->load() ? 1.0 : 0.0};
  // One row of last-stage ranks carries the values. The gather to every rank in world order fixes
  // the order of additions.
  const Topology& topology = model_.topology();
  const Tensor mine = context.from_host<double>({2}, local, Category::workspace);
  const Tensor all = context.empty({2 * topology.world.size()}, DType::f64, Category::workspace);
  topology.world.all_gather(context, mine, all);
  const std::vector<double> sums = context.to_host<double>(all);
  for (std::size_t at = 1; at < sums.size(); at += 2) {
    if (sums[at] != 0) return std::nullopt;
  }
  double total = 0;
  const Mesh& mesh = topology.mesh;
  for (const int rank :
       mesh.group(mesh.moved(0, Group::pipeline, model_.last_stage_rank()), Group::loss)) {
    total += sums[2 * static_cast<std::size_t>(rank)];
  }
  return total / counted_tokens(batches, model_.batch_tokens());
}

std::vector<float> Evaluator::token_losses(const std::vector<HostMicroBatch>& batches) {
  need_finished_step("token_losses");
  Context& context = model_.context();
  runner_->keep_token_losses(true);
  run(batches);
  runner_->keep_token_losses(false);
  const Config& config = model_.config();
  const Topology& topology = model_.topology();
  const std::int64_t samples = config.num_microbatches() * config.batch.micro_batch_size;
  const SequencePieces pieces(config.data.sequence_length, topology.size(Group::context));
  const std::int64_t most = samples * pieces.most();
  // The last element is this rank's place in the batch group; -1 if it has no losses.
  const Tensor losses = runner_->token_losses();
  std::vector<float> mine = losses ? context.to_host<float>(losses) : std::vector<float>();
  mine.resize(static_cast<std::size_t>(most));
  mine.push_back(losses ? static_cast<float>(topology.place(Group::batch)) : -1.0f);
  const Tensor sent = context.from_host<float>({most + 1}, mine, Category::workspace);
  const Tensor all =
      context.empty({(most + 1) * topology.world.size()}, DType::f32, Category::workspace);
  topology.world.all_gather(context, sent, all);
  const std::vector<float> gathered = context.to_host<float>(all);
  std::vector<float> result(
      static_cast<std::size_t>(samples * pieces.positions() * topology.size(Group::batch)));
  for (int rank = 0; rank < topology.world.size(); ++rank) {
    auto from = gathered.begin() + rank * (most + 1);
    const auto place = static_cast<std::int64_t>(*(from + most));
    if (place < 0) continue;
    for (std::int64_t sample = place * samples; sample < (place + 1) * samples; ++sample) {
      for (const SequencePiece& piece : pieces.of(topology.mesh.place(rank, Group::context))) {
        const auto to = result.begin() + sample * pieces.positions() + piece.begin;
        std::copy(from, from + piece.count, to);
        from += piece.count;
      }
    }
  }
  return result;
}

std::vector<float> Evaluator::logits(std::span<const std::int32_t> tokens, std::int64_t first) {
  return last_logits(tokens, std::ssize(tokens) - first, nullptr, 0);
}

std::vector<float> Evaluator::next_logits(std::span<const std::int32_t> tokens,
                                          KeyValueCache& cache, std::int64_t begin) {
  return last_logits(tokens, 1, &cache, begin);
}

std::vector<float> Evaluator::last_logits(std::span<const std::int32_t> tokens, std::int64_t rows,
                                          KeyValueCache* cache, std::int64_t begin) {
  need_finished_step("logits");
  const int ranks = model_.topology().model_ranks();
  const auto length = static_cast<std::int64_t>(tokens.size());
  if (ranks > 1 || rows < 1 || rows > length) {
    throw Error(fmt::format(
        "Evaluator::logits: got {} tokens, the last {} of them, and a model on {} ranks, need a "
        "token and one rank",
        length, rows, ranks));
  }
  Context& context = model_.context();
  MicroBatch batch{.batch = 1,
                   .sequence = length,
                   .training = false,
                   .version = model_.stash() != nullptr ? model_.stash()->live() : 0,
                   .begin = begin,
                   .cache = cache,
                   .logit_rows = rows};
  batch.tokens = context.from_host<std::int32_t>({length}, tokens, Category::activation);
  const Tensor padded = runner_->logits(batch);  // (rows, V'), V' padded
  const std::int64_t vocabulary = model_.shape().vocabulary;
  const Tensor result = context.empty({rows, vocabulary}, DType::f32, Category::activation);
  for (std::int64_t i = 0; i < rows; ++i) {
    copy(context, padded.flat(i * padded.dim(1), vocabulary),
         result.flat(i * vocabulary, vocabulary));
  }
  return context.to_host<float>(result);
}

}  // namespace trident
