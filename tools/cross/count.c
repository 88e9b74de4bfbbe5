/* A plugin of QEMU that prints how many instructions of the emulated processor were executed. Built for this machine;
 * Debian has no header of the plugins, so the few functions in use are declared here as QEMU documents them. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum { ADD = 0 };
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int operation, void *counter, uint64_t by);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t, void *), void *argument);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
static uint64_t instructions;

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &instructions, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *argument) {
    (void)id, (void)argument;
    fprintf(stderr, "instructions %" PRIu64 "\n", instructions);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int count, char **words) {
    (void)info, (void)count, (void)words;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
