/* A stand-in for the libpthread.so.0 of a glibc before 2.34, for the linker only: it gives the functions that the
 * library calls the version that every glibc has (pthread.map.in). A newer glibc has them in libc.so.6 as version 2.34,
 * and keeps the old version for such programs, so the wheel runs on both. Nothing of this file is in the wheel. */
void pthread_create(void) {}
void pthread_join(void) {}
void pthread_getcpuclockid(void) {}
