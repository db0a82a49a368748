// The constraints on the optimizer, the learning rate and the number types.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "settings/fields.h"
#include "settings/paths.h"

namespace trident::config_detail {
namespace {

constexpr auto kDtype = "/precision/dtype";

void validate_update(const Config& config, Problems& problems) {
  if (!problems.sound(kOptimizer)) return;
  const OptimizerParams& params = config.optimizer.params;
  const OptimizerParams usual;
  const OptimizerConstraints& constraints = optimizer_constraints(config);
  const auto refuse = [&](const char* path, bool changed, bool OptimizerConstraints::*reads) {
    if (constraints.*reads || !changed || !problems.sound(path)) return;
    const auto others = names_where(config.constraints->optimizers, reads);
    problems.add(path, fmt::format("does nothing for {}; leave it out{}", constraints.name,
                                   others.empty() ? "" : ", or use " + others.front()));
  };
  refuse("/optimizer/params/momentum", params.momentum != usual.momentum,
         &OptimizerConstraints::momentum);
  refuse("/optimizer/params/betas", params.betas != usual.betas, &OptimizerConstraints::betas);
  refuse("/optimizer/params/eps", params.eps != usual.eps, &OptimizerConstraints::eps);
}

void validate_learning_rate(const OptimizerParams& params, const LrSchedulerConfig& scheduler,
                            Problems& problems) {
  const LrSchedulerConfig usual;
  if (problems.sound({"/scheduler/min_lr", "/optimizer/params/lr"}) &&
      scheduler.min_lr > params.lr) {
    problems.add("/scheduler/min_lr", fmt::format("{} is more than optimizer.params.lr ({})",
                                                  scheduler.min_lr, params.lr));
  }
  if (problems.sound("/scheduler/type")) {
    const auto refuse = [&](const char* path, bool changed, const char* types) {
      if (!changed || !problems.sound(path)) return;
      problems.add(path, fmt::format("does nothing for type \"{}\"; leave it out, or use type {}",
                                     scheduler.type, types));
    };
    const bool piecewise = scheduler.type == "piecewise";
    refuse("/scheduler/min_lr", scheduler.type == "constant" && scheduler.min_lr != 0,
           "\"linear\" or \"cosine\"");
    refuse("/scheduler/power", scheduler.type != "polynomial" && scheduler.power != usual.power,
           "\"polynomial\"");
    refuse("/scheduler/gamma",
           scheduler.type != "exponential" && !piecewise && scheduler.gamma != usual.gamma,
           "\"exponential\" or \"piecewise\"");
    const bool restarts = scheduler.type == "cosine_with_restarts";
    refuse("/scheduler/num_cycles", !restarts && scheduler.num_cycles != usual.num_cycles,
           "\"cosine_with_restarts\"");
    refuse("/scheduler/cycle_mult", !restarts && scheduler.cycle_mult != usual.cycle_mult,
           "\"cosine_with_restarts\"");
    const bool wsd = scheduler.type == "wsd";
    refuse("/scheduler/wsd_decay_iters", !wsd && scheduler.wsd_decay_iters != 0, "\"wsd\"");
    refuse("/scheduler/wsd_decay_style", !wsd && scheduler.wsd_decay_style != usual.wsd_decay_style,
           "\"wsd\"");
    refuse("/scheduler/milestones", !piecewise && !scheduler.milestones.empty(), "\"piecewise\"");
    if (piecewise && problems.sound("/scheduler/milestones") &&
        (scheduler.milestones.empty() ||
         std::adjacent_find(scheduler.milestones.begin(), scheduler.milestones.end(),
                            std::greater_equal<>()) != scheduler.milestones.end())) {
      problems.add("/scheduler/milestones",
                   "type \"piecewise\" needs iterations here, in ascending order");
    }
  }
}

void validate_types(const PrecisionConfig& precision, Problems& problems) {
  if (problems.sound({kDtype, "/precision/grad_accum_dtype"}) &&
      precision.grad_accum_dtype != "fp32" && precision.grad_accum_dtype != precision.dtype) {
    problems.add("/precision/grad_accum_dtype",
                 fmt::format("\"{}\" is neither \"fp32\" nor precision.dtype (\"{}\"); use one of "
                             "the two",
                             precision.grad_accum_dtype, precision.dtype));
  }
  if (problems.sound({kDtype, "/precision/tf32"}) && precision.tf32 && precision.dtype != "fp32") {
    problems.add("/precision/tf32",
                 fmt::format("does nothing for dtype \"{}\"; leave it out, or use dtype \"fp32\"",
                             precision.dtype));
  }
}

// Refuses keys that only an fp16 loss scale, or only an adaptive one, would read.
void validate_unused_scale(const Config& config, Problems& problems) {
  const PrecisionConfig& precision = config.precision;
  const PrecisionConfig usual;
  const auto refuse = [&](const char* path, bool changed) {
    if (!changed || !problems.sound(path)) return;
    if (precision.dtype != "fp16") {
      const bool goes = problems.sound(kSchedule) && !schedule_constraints(config).each_microbatch;
      problems.add(path, fmt::format("does nothing for dtype \"{}\"; leave it out{}",
                                     precision.dtype, goes ? ", or use dtype \"fp16\"" : ""));
    } else if (precision.loss_scale != 0) {
      problems.add(path, fmt::format("does nothing with a fixed loss_scale ({}); leave one of them "
                                     "out",
                                     precision.loss_scale));
    }
  };
  if (precision.dtype != "fp16") refuse("/precision/loss_scale", precision.loss_scale != 0);
  refuse("/precision/initial_scale_power",
         precision.initial_scale_power != usual.initial_scale_power);
  refuse("/precision/loss_scale_window", precision.loss_scale_window != usual.loss_scale_window);
  refuse("/precision/hysteresis", precision.hysteresis != usual.hysteresis);
  refuse("/precision/min_loss_scale", precision.min_loss_scale != usual.min_loss_scale);
}

}  // namespace

void validate_optimizer(const Config& config, Problems& problems) {
  validate_update(config, problems);
  validate_zero(config, problems);
  validate_learning_rate(config.optimizer.params, config.scheduler, problems);
}

void validate_precision(const Config& config, Problems& problems) {
  const PrecisionConfig& precision = config.precision;
  validate_types(precision, problems);
  if (!problems.sound({kDtype, "/precision/loss_scale"})) return;
  validate_unused_scale(config, problems);
  if (precision.dtype != "fp16") return;
  if (precision.loss_scale > 0 && precision.loss_scale < 0x1p-64) {
    problems.add("/precision/loss_scale",
                 fmt::format("{} leaves nothing of the gradients; use at least {}, or 0, which "
                             "adapts it",
                             precision.loss_scale, 0x1p-64));
  }
  const double initial = std::ldexp(1.0, static_cast<int>(precision.initial_scale_power));
  if (precision.loss_scale == 0 &&
      problems.sound({"/precision/initial_scale_power", "/precision/min_loss_scale"}) &&
      initial < precision.min_loss_scale) {
    problems.add(
        "/precision/min_loss_scale",
        fmt::format("{} is above the scale that initial_scale_power ({}) begins with; use at "
                    "most {}",
                    precision.min_loss_scale, precision.initial_scale_power, initial));
  }
  validate_fp16_schedule(config, problems);
}

}  // namespace trident::config_detail
