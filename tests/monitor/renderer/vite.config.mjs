export default {
    base: './',
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    build: { minify: false, sourcemap: false, chunkSizeWarningLimit: 100000, emptyOutDir: true },
    logLevel: 'error',
};
