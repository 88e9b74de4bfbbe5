// lapis.h for C++17: a network that closes itself, pixels in any container, errors as exceptions. Header only.
//
//     lapis::network network("model.safetensors");
//     for (const auto &best : network.predict(pixels, height, width)) std::cout << best.label << '\n';
//
// Pixels are bytes in a vector, array, span (C++20) or any other container with data() and size(): rows from the top,
// red, green, blue. A network may be moved and not copied, and is used by one thread at a time.
#ifndef LAPIS_HPP
#define LAPIS_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lapis.h"

namespace lapis {

// The message of the C library, its status, and the rule of docs/format.md that a file breaks, or 0.
class error : public std::runtime_error {
   public:
    explicit error(const lapis_error &e)
        : std::runtime_error(e.message), status_(static_cast<lapis_status>(e.status)), rule_(e.rule) {}
    lapis_status status() const noexcept { return status_; }
    int rule() const noexcept { return rule_; }

   private:
    lapis_status status_;
    int rule_;
};

// `score` is the share of the softmax of the logits; `label` the class's number where the file has no names.
struct prediction {
    std::int64_t index;
    std::string label;
    float logit;
    double score;
};

class network {
   public:
    explicit network(const std::string &path, std::int32_t threads = 1, std::int32_t flags = 0) {
        open([&](lapis_network **out, lapis_error *e) { return lapis_open(path.c_str(), threads, flags, out, e); });
    }

    // From the bytes of a packed file, which are not needed afterwards.
    template <class Bytes>
    static network from_memory(const Bytes &bytes, std::int32_t threads = 1, std::int32_t flags = 0) {
        static_assert(sizeof *std::data(bytes) == 1, "a file is bytes");
        network made;
        made.open([&](lapis_network **out, lapis_error *e) {
            return lapis_open_memory(std::data(bytes), std::size(bytes), threads, flags, out, e);
        });
        return made;
    }

    const lapis_sizes &sizes() const { return *lapis_sizes_of(get()); }
    lapis_network *get() const noexcept { return handle_.get(); }

    std::string class_name(std::int64_t index) const {
        const char *name = lapis_class_name(get(), index);
        return name ? name : std::to_string(index);
    }

    // Integer logits [batch, classes] of `batch` pictures of one size.
    template <class Pixels>
    std::vector<std::int64_t> run(const Pixels &pixels, std::int64_t height, std::int64_t width,
                                  std::int64_t batch = 1) {
        const std::uint8_t *data = checked(pixels, batch, height, width);
        std::vector<std::int64_t> logits(static_cast<std::size_t>(batch * sizes().classes));
        lapis_error e;
        check(lapis_run(get(), data, batch, height, width, logits.data(), &e), e);
        return logits;
    }

    // The likeliest classes of one picture, best first.
    template <class Pixels>
    std::vector<prediction> predict(const Pixels &pixels, std::int64_t height, std::int64_t width,
                                    std::int64_t top_k = 5) {
        const std::vector<std::int64_t> logits = run(pixels, height, width);
        if (top_k < 1) refuse("top_k must be at least 1");
        std::vector<std::int64_t> order(std::min(static_cast<std::size_t>(top_k), logits.size()));
        lapis_best(get(), logits.data(), static_cast<std::int64_t>(order.size()), order.data());
        const auto real = [&](std::int64_t logit) { return lapis_real(get(), logit); };
        const double most = real(logits[static_cast<std::size_t>(order[0])]);
        double sum = 0;
        for (std::int64_t logit : logits) sum += std::exp(real(logit) - most);
        std::vector<prediction> best;
        for (std::int64_t index : order) {
            const float logit = real(logits[static_cast<std::size_t>(index)]);
            best.push_back({index, class_name(index), logit, std::exp(logit - most) / sum});
        }
        return best;
    }

    // One picture resized and cut as the network sees it: [image_size, image_size, 3].
    template <class Pixels>
    std::vector<std::uint8_t> prepare(const Pixels &pixels, std::int64_t height, std::int64_t width) const {
        const std::uint8_t *data = checked(pixels, 1, height, width);
        std::vector<std::uint8_t> out(static_cast<std::size_t>(3 * sizes().image_size * sizes().image_size));
        lapis_error e;
        check(lapis_prepare(get(), data, height, width, out.data(), &e), e);
        return out;
    }

   private:
    struct closer {
        void operator()(lapis_network *opened) const noexcept { lapis_close(opened); }
    };
    std::unique_ptr<lapis_network, closer> handle_;

    network() = default;

    template <class Open>
    void open(Open open_it) {
        lapis_network *opened = nullptr;
        lapis_error e;
        check(open_it(&opened, &e), e);
        handle_.reset(opened);
    }

    static void check(std::int32_t status, const lapis_error &e) {
        if (status != LAPIS_OK) throw error(e);
    }

    [[noreturn]] static void refuse(const std::string &why) {
        lapis_error e{LAPIS_BAD_ARGUMENT, 0, {}};
        why.copy(e.message, sizeof e.message - 1);
        throw error(e);
    }

    // The pixels, if there are as many as these sizes say; a side is at most 2^20, so that nothing overflows.
    template <class Pixels>
    static const std::uint8_t *checked(const Pixels &pixels, std::int64_t batch, std::int64_t height,
                                       std::int64_t width) {
        constexpr std::int64_t most = std::int64_t{1} << 20;
        const std::uint8_t *data = std::data(pixels);
        const auto outside = [](std::int64_t side) { return side < 1 || side > most; };
        if (outside(batch) || outside(height) || outside(width) ||
            static_cast<std::uint64_t>(std::size(pixels)) != static_cast<std::uint64_t>(3 * batch * height * width))
            refuse(std::to_string(std::size(pixels)) + " bytes are not 3 for each pixel of " + std::to_string(batch) +
                   " pictures of " + std::to_string(height) + " rows and " + std::to_string(width) + " columns");
        return data;
    }
};

}  // namespace lapis

#endif
