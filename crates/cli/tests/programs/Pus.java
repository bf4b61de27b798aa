/** Says how many PUs the virtual machine counts at the start and after a while. */
public class Pus {
    public static void main(String[] args) throws Exception {
        int before = Runtime.getRuntime().availableProcessors();
        Thread thread = new Thread(() -> {
            long end = System.nanoTime() + 1_000_000_000L;
            while (System.nanoTime() < end) { }
        });
        thread.start();
        thread.join();
        System.out.println(before + " " + Runtime.getRuntime().availableProcessors());
    }
}
