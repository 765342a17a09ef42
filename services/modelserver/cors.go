package modelserver

import "net/http"

// cors lets pages of any origin read the answers, as the Fetch standard has it for requests without credentials; done
// says that the request only asked whether it may, and is answered.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) (done bool) {
	if !s.cfg.CORS {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "*")
	w.WriteHeader(http.StatusNoContent)
	return true
}
