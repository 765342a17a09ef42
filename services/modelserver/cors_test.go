package modelserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Only a server that is told so lets pages of other origins read what it answers, errors included.
func TestCORS(t *testing.T) {
	ask := func(cors bool, method string, header ...string) *httptest.ResponseRecorder {
		s, _ := viewing(t, Config{CORS: cors})
		r := httptest.NewRequest(method, "/v1/models/nobody:predict", nil)
		r.Header.Set("Origin", "http://a.example")
		for _, h := range header {
			r.Header.Set(h, "POST")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	const preflight = "Access-Control-Request-Method"
	if w := ask(true, http.MethodOptions, preflight); w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
		w.Header().Get("Access-Control-Allow-Methods") != "GET, POST" || w.Header().Get("Access-Control-Allow-Headers") != "*" {
		t.Errorf("whether it may: %d %v", w.Code, w.Header())
	}
	if w := ask(true, http.MethodPost); w.Code == http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "*" || w.Body.Len() == 0 {
		t.Errorf("a refusal: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := ask(true, http.MethodOptions); w.Code != http.StatusBadRequest {
		t.Errorf("OPTIONS of somebody else: %d", w.Code)
	}
	if w := ask(false, http.MethodOptions, preflight); w.Code != http.StatusBadRequest || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without the flag: %d %v", w.Code, w.Header())
	}
}
